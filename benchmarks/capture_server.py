"""The server that `benchmarks.capture_cost` measures: `python -m benchmarks.capture_server HOME`.

All of capture is on: keys, placing, rendering with the bundled model's tokenizer and template, parsing, the store on
disk. Only the engine is scripted and paced. Beside the product's routes stand `/through`, a bare aiohttp handler that
streams the same chunks from the same engine, `/plain`, which serves the model and captures nothing, and `/engine`,
which only runs the engine. The first line on standard output is the port; the end of standard input ends it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import msgspec
from aiohttp import web

from benchmarks.http import bundled_model
from benchmarks.in_process import parts_around
from openclaw_rl.collect.stage import Collect, CollectSettings
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.render.encoding import Detokeniser
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.template import read_template
from openclaw_rl.runtime.activity import Activity
from openclaw_rl.runtime.serving import set_aside
from openclaw_rl.serve.apis.chat.wire import ChatBody, messages_of, parsed, tools_of
from openclaw_rl.serve.app import build_app, runner_of
from openclaw_rl.serve.failures import Handler
from openclaw_rl.serve.request.unseen import Placeholders
from openclaw_rl.store.db import Store
from openclaw_rl.testing.engine import ScriptedEngine
from openclaw_rl.testing.listening import listening

GAP_S = 1 / 50
MOST_TOKENS = 2048
STORY = (
    "The first part is worked out from the numbers in the problem. Then the second part follows, and the answer is "
    "written below the line.\n"
)
CHUNK = (
    b'data: {"id":"chatcmpl-0123456789abcdef0123456789abcdef","object":"chat.completion.chunk","created":1700000000,'
    b'"model":"default","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}\n\n'
)


def main() -> None:
    """Serves until standard input ends."""
    asyncio.run(_serve(Path(sys.argv[1])))


async def _serve(home: Path) -> None:
    model = bundled_model()
    assert model is not None
    renderer = ChatRenderer(read_template(model))
    store = await Store.open(home)
    engine = _engine(renderer)
    app = build_app(parts_around(store, renderer, engine, Collect(store, CollectSettings(), time.time)))
    app.middlewares.append(Activity().middleware)
    app.router.add_post("/through", _through(engine))
    app.router.add_post("/plain", _plain(engine, renderer))
    app.router.add_post("/engine", _alone(engine))
    try:
        async with listening(runner_of(app)) as url:
            set_aside()  # as the product does once it is ready
            print(url.rpartition(":")[2], flush=True)
            await asyncio.to_thread(sys.stdin.read)
    finally:
        await store.aclose()


def _engine(renderer: ChatRenderer) -> ScriptedEngine:
    ids = renderer.encode(STORY)
    ids *= MOST_TOKENS // len(ids) + 1

    def script(prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> tuple[int, ...]:
        engine.asked.clear()  # nobody looks at what was asked, and long prompts would pile up
        return ids[: min(sampling.max_tokens, MOST_TOKENS)]

    engine = ScriptedEngine(script, gap_s=GAP_S)
    return engine


def _through(engine: ScriptedEngine) -> Handler:
    """The least a server can do: the body is read and not looked at, the chunks are written as they come."""

    async def handle(request: web.Request) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        async for _ in engine.generate(Prompt((1,)), Sampling(int(request.headers["x-tokens"])), BASE):
            await response.write(CHUNK)
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    return handle


def _plain(engine: ScriptedEngine, renderer: ChatRenderer) -> Handler:
    """The least that serves a chat: messages rendered and encoded, ids read back to text, nothing kept of either."""

    async def handle(request: web.Request) -> web.StreamResponse:
        body = parsed(await request.read(), ChatBody)
        tools = tools_of(body.tools or ())
        text = renderer.template.text(messages_of(body.messages, Placeholders()), tools, generation_prompt=True)
        prompt = Prompt(tuple(renderer.template.encode(text)))
        told = Detokeniser(renderer.table)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        async for token in engine.generate(prompt, Sampling(body.max_tokens or 1), BASE):
            await response.write(CHUNK.replace(b'" word"', msgspec.json.encode(told.feed(token.token))))
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    return handle


def _alone(engine: ScriptedEngine) -> Handler:
    """The engine by itself: its time is taken out of the others'."""

    async def handle(request: web.Request) -> web.StreamResponse:
        await request.read()
        async for _ in engine.generate(Prompt((1,)), Sampling(int(request.headers["x-tokens"])), BASE):
            pass
        return web.Response(body=b"data: [DONE]\n\n")

    return handle


if __name__ == "__main__":
    main()
