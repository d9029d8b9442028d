"""A server of ours whose model says what a script says; all else is the product's: HTTP, sessions, rendering, store."""

from __future__ import annotations

import contextlib
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.http import bundled_model
from benchmarks.in_process import parts_around, served
from openclaw_rl.collect.stage import Collect, CollectSettings
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.template import read_template
from openclaw_rl.serve.door.auth import Keys
from openclaw_rl.serve.settings import ServeSettings
from openclaw_rl.store.db import Store
from openclaw_rl.testing.engine import ScriptedEngine

KEY = "sk-scripted"


@dataclass(frozen=True, slots=True)
class ScriptedServer:
    """Where it listens, and its store."""

    url: str
    store: Store


def call(command: str) -> str:
    """A call of bash as the bundled model writes one."""
    return f"<tool_call>\n{json.dumps({'name': 'bash', 'arguments': {'command': command}})}\n</tool_call>"


@contextlib.asynccontextmanager
async def scripted(home: Path, replies: Iterable[str]) -> AsyncIterator[ScriptedServer]:
    """Such a server on a free port, with its store in `home`."""
    model = bundled_model()
    assert model is not None
    renderer = ChatRenderer(read_template(model))
    eos, left = renderer.template.eos_ids()[0], deque(replies)
    store = await Store.open(home)
    collect = Collect(store, CollectSettings(), time.time)
    engine = ScriptedEngine(lambda *asked: (*renderer.encode(left.popleft()), eos))
    parts = replace(
        parts_around(store, renderer, engine, collect),
        keys=Keys({"owner": KEY}),
        settings=ServeSettings(any_model_name=True),
    )
    try:
        async with served(parts) as url:
            yield ScriptedServer(url, store)
    finally:
        await store.aclose()
