"""What share of the recorded client's prompts needs no reading, by the real engine on the bundled model.

Every recording is rendered and read by the engine in the order it came; what counts are the requests that are not the
first of their session. Beside it, from the ids alone: what share is left where a line of the system text or the first
message changes between two requests of a session. The engine reuses what stands before the first changed id.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.common import Figures, progress, quantile
from openclaw_rl.core.message import Json, Message, Role, Tool
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE
from openclaw_rl.engines.local.cache import ids, shared
from openclaw_rl.engines.local.client import LocalEngine
from openclaw_rl.engines.settings import EngineSettings
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.serve.apis.chat.wire import ChatBody, messages_of, parsed, tools_of
from openclaw_rl.serve.request.unseen import Placeholders

Asked = tuple[str | None, Mapping[str, Json]]  # the session, where it is known, and the body


async def reuse(asked: Sequence[Asked], renderer: ChatRenderer, model: Path) -> Figures:
    """`reused_share` of second and later requests, the time to their first token, and the share left by changes."""
    engine = await LocalEngine.start(EngineSettings(model=str(model), threads=1))
    seen: set[str] = set()
    read, cached = 0, 0
    again_s: list[float] = []
    first_s: list[float] = []
    try:
        for session, body in asked:
            prompt = _prompt(body, renderer)
            started = time.monotonic()
            async for token in engine.generate(prompt, Sampling(max_tokens=1, seed=0), BASE):
                took_s = time.monotonic() - started
                if session in seen:
                    read, cached = read + len(prompt), cached + token.cached
                    again_s.append(took_s)
                elif not token.cached:
                    first_s.append(took_s)
                progress(f"{session}: {token.cached} of {len(prompt)} ids reused, {took_s:.2f} s to the first token")
            if session is not None:
                seen.add(session)
    finally:
        await engine.aclose()
    return {
        "reused_share": cached / read if read else None,
        "later_requests": len(again_s),
        "later_ttft_s_p50": quantile(again_s, 0.5) if again_s else None,
        "cold_ttft_s_p50": quantile(first_s, 0.5) if first_s else None,
    }


def left_by_changes(before: Mapping[str, Json], after: Mapping[str, Json], renderer: ChatRenderer) -> Figures:
    """What of the second request of a session is reused where something in it is not as it was."""
    first = ids(_prompt(before, renderer).tokens)
    shares: Figures = {}
    for name, old, new in (
        ("nothing", "", ""),
        ("date at the end of the system text", "Current date: 2026-11-21", "Current date: 2026-11-22"),
        ("model in the Runtime line", "default_model=", "default_model=other/"),
        ("a tool listed at the start of the system text", "- apply_patch", "- another\n- apply_patch"),
    ):
        messages, tools = _asked(after)
        changed = tuple(_replaced(item, old, new) for item in messages)
        second = renderer.prompt(changed, tools, None)
        is_changed = changed != messages
        shares[name] = shared(first, ids(second.tokens)) / len(second) if is_changed or not old else None
    return shares


def _prompt(body: Mapping[str, Json], renderer: ChatRenderer) -> Prompt:
    messages, tools = _asked(body)
    return renderer.prompt(messages, tools, None)


def _asked(body: Mapping[str, Json]) -> tuple[tuple[Message, ...], tuple[Tool, ...]]:
    spec = parsed(json.dumps(body).encode(), ChatBody)
    return messages_of(spec.messages, Placeholders()), tuple(tools_of(spec.tools or []))


def _replaced(item: Message, old: str, new: str) -> Message:
    return item.with_text(item.text.replace(old, new, 1)) if old and item.role in (Role.SYSTEM, Role.USER) else item
