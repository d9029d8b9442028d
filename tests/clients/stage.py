"""The server that clients are run against, and the stage directions it takes: `stage.py HOME OUT CLIENT`.

Everything a request meets is the product's: HTTP, sessions, rendering, the store on disk, the judging stage. Only what
the model says is scripted, so that tool calls, failing tools and compactions happen for sure. The directions come over
a second port: which conversation begins, what its owner types, what is answered. Each exchange is noted with them.
The first line on standard output holds both ports; the end of standard input ends the server and writes OUT.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path

from aiohttp import web
from script import WORDS, Exchange, Script

from benchmarks.http import bundled_model
from benchmarks.in_process import grammar_check, parts_around
from openclaw_rl.collect.clients.rules import readable
from openclaw_rl.collect.stage import Collect, CollectSettings
from openclaw_rl.core.completion import SampledToken, Scores
from openclaw_rl.core.message import Json, Message
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.turn import Arrival, Placement, Turn
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.judge.llm import LlmJudge
from openclaw_rl.judge.settings import JudgeSettings
from openclaw_rl.judge.stage import JudgeStage
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.template import read_template
from openclaw_rl.serve.app import build_app, runner_of
from openclaw_rl.serve.parts import ServeParts
from openclaw_rl.serve.settings import ServeSettings
from openclaw_rl.store.db import Store
from openclaw_rl.testing.engine import ScriptedEngine
from openclaw_rl.testing.judge import ScriptedChat
from openclaw_rl.testing.listening import listening

CONTEXT = 1_000_000  # tokens; the toy's tokenizer cuts small, and the clients' prompts are long
SLOW_S = 0.25  # between two tokens of a reply that is to be cancelled
ANSWERED = ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/completions")
_NOW: ContextVar[Exchange] = ContextVar("exchange")


class Paced:
    """The scripted engine, slow where the script says so."""

    def __init__(self, quick: ScriptedEngine, slow: ScriptedEngine, script: Script) -> None:
        self._quick, self._slow, self._script = quick, slow, script

    def generate(self, prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> AsyncIterator[SampledToken]:
        engine = self._slow if self._script.is_slow else self._quick
        return engine.generate(prompt, sampling, version)

    async def score(self, prompt: Prompt, *, start: int, version: PolicyVersion, top_k: int = 0) -> Scores:
        return await self._quick.score(prompt, start=start, version=version, top_k=top_k)

    async def load(self, adapter: object) -> None:
        raise NotImplementedError

    async def unload(self, version: PolicyVersion) -> None:
        raise NotImplementedError


class Noting:
    """The product's collector; which turns a request became is noted."""

    def __init__(self, collect: Collect) -> None:
        self._collect = collect

    async def place(self, arrival: Arrival) -> Placement:
        return await self._collect.place(arrival)

    async def commit(self, turn: Turn) -> None:
        _NOW.get().turns.append(turn.id)
        await self._collect.commit(turn)


def main() -> None:
    """Serves until standard input ends."""
    asyncio.run(_serve(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))


async def _serve(home: Path, out: Path, client: str) -> None:
    model = bundled_model()
    assert model is not None
    renderer = ChatRenderer(read_template(model))
    store = await Store.open(home)
    script = Script(client)
    parts = _parts(store, renderer, _engine(renderer, script))
    app = build_app(parts)
    app.middlewares.append(_noting(script, renderer))
    directions = _directions(script, parts)
    judge = LlmJudge(ScriptedChat(_opinion), JudgeSettings(), name="scripted", budget=store, readable=readable)
    judging = JudgeStage(store, judge, JudgeSettings())
    task = asyncio.create_task(judging.run())
    try:
        async with listening(runner_of(app)) as url, listening(directions) as directing:
            print(*(each.rpartition(":")[2] for each in (url, directing)), flush=True)
            await asyncio.to_thread(sys.stdin.read)
            await asyncio.sleep(0.5)
            task.cancel()
            text = json.dumps(await _noted(script, store), ensure_ascii=False)
            await asyncio.to_thread(out.write_text, text, "utf-8")
    finally:
        task.cancel()
        await store.aclose()


def _engine(renderer: ChatRenderer, script: Script) -> Paced:
    eos = renderer.template.eos_ids()[0]

    def says(prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> tuple[int, ...]:
        exchange = _NOW.get()
        exchange.prompt_tokens = len(prompt)
        return (*renderer.encode(script.reply(exchange)), eos)

    return Paced(ScriptedEngine(says), ScriptedEngine(says, gap_s=SLOW_S), script)


def _opinion(messages: Sequence[Message]) -> str:
    """What the scripted judge thinks: a correction that it is shown is one."""
    asked = "\n".join(item.text for item in messages)
    return "\\boxed{-1}" if any(words in asked for words in WORDS["correction"]) else "\\boxed{1}"


def _parts(store: Store, renderer: ChatRenderer, engine: Paced) -> ServeParts:
    collect = Collect(store, CollectSettings(), time.time)
    return replace(
        parts_around(store, renderer, engine, collect),
        collector=Noting(collect),
        settings=ServeSettings(any_model_name=True),
        check_grammar=grammar_check(renderer),
    )


def _noting(script: Script, renderer: ChatRenderer):
    @web.middleware
    async def note(request: web.Request, handler) -> web.StreamResponse:
        raw = await request.read()
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            body = raw.decode("utf-8", "replace")
        headers = {name.lower(): value for name, value in request.headers.items()}
        exchange = Exchange(request.method, request.path_qs, headers, body)
        exchange.is_answered = request.path in ANSWERED
        script.note(exchange)
        _NOW.set(exchange)
        try:
            response = await handler(request)
        except asyncio.CancelledError:
            exchange.status = 499
            raise
        exchange.status = response.status
        if response.status >= 400 and isinstance(response, web.Response):
            exchange.refusal = (response.text or "")[:2000]
            script.give_back(exchange)
        return response

    return note


def _directions(script: Script, parts: ServeParts) -> web.Application:
    async def direct(request: web.Request) -> web.Response:
        said = await request.json() if request.body_exists else {}
        what = request.match_info["what"]
        if what == "context":  # the room a model has is fixed in the product; a test of a full one needs another
            object.__setattr__(parts, "context_length", said.get("tokens") or CONTEXT)
            return web.json_response({})
        return web.json_response(script.direct(what, said))

    app = web.Application(client_max_size=2**26)
    app.router.add_post("/{what}", direct)
    return app


async def _noted(script: Script, store: Store) -> dict[str, Json]:
    exchanges: list[Json] = []
    for each in script.exchanges:
        held = each.as_json()
        rows = [row for name in each.turns if (row := await store.row(name)) is not None]
        held["rows"] = [_row(row) for row in rows]
        exchanges.append(held)
    return {"events": script.events, "notes": script.notes, "exchanges": exchanges}


def _row(row) -> dict[str, Json]:
    heard = row.next_state
    said: Sequence[Message] = () if heard is None else heard.messages
    verdict = row.verdict
    return {
        "turn": row.turn.id,
        "session": row.turn.session,
        "kind": row.turn.kind.value,
        "why": row.turn.why,
        "parent": row.turn.parent,
        "tokens": len(row.turn.completion.tokens),
        "finish": row.turn.completion.finish.value,
        "reason": None if row.reason is None else row.reason.value,
        "state": None if row.state is None else row.state.value,
        "next_state": None if heard is None else [[item.role.value, item.text] for item in said],
        "source": None if heard is None else heard.source.value,
        "score": None if verdict is None else verdict.score,
    }


if __name__ == "__main__":
    main()
