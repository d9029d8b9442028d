"""The kinds that a contract is tested on: the doubles, and the real ones as settings open them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from aiohttp import web
from aiohttp.test_utils import TestServer

from openclaw_rl.core.adapter import Adapter, digest_of_folder
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Chat, Engine, Renderer, Trainer
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.engines.open import open_engine
from openclaw_rl.engines.remote.model import text_ids
from openclaw_rl.engines.settings import EngineKind as EngineKindName
from openclaw_rl.engines.settings import EngineSettings, RemoteSettings
from openclaw_rl.errors import JudgeError
from openclaw_rl.home.models import model_folder
from openclaw_rl.judge.partners import EndpointChat, EngineChat
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.template import read_template
from openclaw_rl.testing.engine import ScriptedEngine
from openclaw_rl.testing.folders import an_adapter
from openclaw_rl.testing.judge import ScriptedChat
from openclaw_rl.testing.model_servers import ModelServer, vllm_app
from openclaw_rl.testing.renderer import END, LetterRenderer, ids_of
from openclaw_rl.testing.sglang_server import SPARE, sglang_app
from openclaw_rl.testing.trainer import ScriptedTrainer
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.open import open_trainer
from openclaw_rl.trainers.settings import Method, MethodSettings, TrainerSettings

SETTINGS = TrainerSettings(rank=4, alpha=8.0, nice=0, method=MethodSettings(name=Method.COMBINE))
CONTEXT = 512
REAL_VLLM = "REAL_VLLM"  # in the environment: the Python that has vLLM installed


@dataclass(frozen=True)
class EngineKind:
    """An engine, adapters for its model, how long a prompt may be, and the model's folder where it has one."""

    engine: Engine
    adapter: Callable[[int], Adapter]
    context_length: int
    model: Path | None = None


@dataclass(frozen=True)
class RendererKind:
    """A renderer, and the ids of an answer with the one that ends it."""

    renderer: Renderer
    answer: Callable[[str], tuple[int, ...]]


@dataclass(frozen=True)
class ChatKind:
    """A model that says one thing, and one that cannot be reached."""

    chat: Chat
    away: Chat


def version(number: int) -> PolicyVersion:
    return PolicyVersion(SHARED, number)


@asynccontextmanager
async def scripted_engine(folder: Path) -> AsyncIterator[EngineKind]:
    """Says other ids to each seed."""

    def says(prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> Sequence[int]:
        return tuple((sum(prompt.tokens) + (sampling.seed or 0) + at) % 50 for at in range(sampling.max_tokens))

    yield EngineKind(ScriptedEngine(says, context_length=CONTEXT), partial(an_adapter, folder), CONTEXT)


def trained(model: Path, folder: Path) -> Callable[[int], Adapter]:
    """Adapters of the local trainer's, each written once."""
    trainer = LoraTrainer.open(model, SETTINGS)

    def adapter(number: int) -> Adapter:
        made = folder / str(number)
        if not made.exists():
            return trainer.export(made, version(number))
        return Adapter(made, digest_of_folder(made), version(number))

    return adapter


@asynccontextmanager
async def local_engine(folder: Path) -> AsyncIterator[EngineKind]:
    """The bundled model in a process of its own."""
    model = model_folder("bundled")
    adapter = trained(model, folder)
    async with aclosing(await open_engine(EngineSettings(device="cpu", cache_tokens=8192), model)) as engine:
        yield EngineKind(engine, adapter, engine.info.context_length, model)


@asynccontextmanager
async def scripted_trainer() -> AsyncIterator[Trainer]:
    yield ScriptedTrainer()


@asynccontextmanager
async def local_trainer() -> AsyncIterator[Trainer]:
    """The bundled model's, in a process of its own."""
    with TemporaryDirectory() as home:
        async with aclosing(open_trainer(model_folder("bundled"), SETTINGS, Path(home))) as trainer:
            yield trainer


def letters() -> RendererKind:
    return RendererKind(LetterRenderer(), lambda text: (*ids_of(text), END))


def chat_template() -> RendererKind:
    """The bundled model's template and tokenizer."""
    renderer = ChatRenderer(read_template(model_folder("bundled")))
    return RendererKind(renderer, lambda text: (*renderer.encode(text), *renderer.template.eos_ids()[:1]))


@asynccontextmanager
async def scripted_chat(says: str) -> AsyncIterator[ChatKind]:
    away = JudgeError("away")
    yield ChatKind(ScriptedChat(lambda asked: says), ScriptedChat(lambda asked: away))


@asynccontextmanager
async def engine_chat(says: str) -> AsyncIterator[ChatKind]:
    """The model that is served."""
    engine, away = (ScriptedEngine(lambda *asked: (*ids_of(says), END)) for _ in range(2))
    away.is_away = True
    chats = [EngineChat(each, LetterRenderer(), stop_ids=(END,)) for each in (engine, away)]
    yield ChatKind(*chats)


@asynccontextmanager
async def endpoint_chat(says: str) -> AsyncIterator[ChatKind]:
    """A model at an endpoint of its own."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"choices": [{"message": {"role": "assistant", "content": says}}]})

    async def away(request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "away"}}, status=503)

    app = web.Application()
    app.add_routes([web.post("/v1/chat/completions", answer), web.post("/away/chat/completions", away)])
    async with TestServer(app) as server, AsyncExitStack() as stack:
        chats = [
            await stack.enter_async_context(EndpointChat(str(server.make_url(path)), "m", retries=0))
            for path in ("/v1", "/away")
        ]
        yield ChatKind(*chats)


def served_by(
    kind: EngineKindName, app: Callable[[ModelServer], web.Application], **changes: object
) -> Callable[[Path], AbstractAsyncContextManager[EngineKind]]:
    """A double of a model server, which says what the scripted engine says."""

    @asynccontextmanager
    async def made(folder: Path) -> AsyncIterator[EngineKind]:
        model = model_folder("bundled")
        async with scripted_engine(folder) as scripted, AsyncExitStack() as stack:
            assert isinstance(scripted.engine, ScriptedEngine)
            room = CONTEXT + (1 if kind is EngineKindName.VLLM else SPARE)
            server = ModelServer(scripted.engine, lambda text: list(text_ids(model, text)), room, key="secret")
            server = replace(server, **changes)
            url = str((await stack.enter_async_context(TestServer(app(server)))).make_url("/"))
            settings = EngineSettings(kind=kind, remote=RemoteSettings(urls=(url,), api_key="secret"))
            engine = await open_engine(settings, model, rank=4)
            stack.push_async_callback(engine.aclose)
            yield EngineKind(engine, scripted.adapter, CONTEXT, model)

    return made


@asynccontextmanager
async def real_vllm(folder: Path) -> AsyncIterator[EngineKind]:
    """The bundled model on a server of vLLM, started by the Python that REAL_VLLM names."""
    model = model_folder("bundled")
    adapter = trained(model, folder)
    options = ("--enforce-eager", "--dtype", "float32", "--max-model-len", str(CONTEXT + 1))
    remote = RemoteSettings(python=os.environ[REAL_VLLM], options=options)
    engine = await open_engine(EngineSettings(kind=EngineKindName.VLLM, remote=remote), model, rank=SETTINGS.rank)
    try:
        yield EngineKind(engine, adapter, CONTEXT, model)
    finally:
        await engine.aclose()


ENGINES = {
    "scripted": scripted_engine,
    "local": local_engine,
    "vllm double": served_by(EngineKindName.VLLM, vllm_app),
    "vllm double without ids": served_by(EngineKindName.VLLM, vllm_app, takes_tokens=False),
    "sglang double": served_by(EngineKindName.SGLANG, sglang_app),
    **({"vllm": real_vllm} if REAL_VLLM in os.environ else {}),
}
TRAINERS = {"scripted": scripted_trainer, "local": local_trainer}
CHATS = {"scripted": scripted_chat, "served model": engine_chat, "endpoint": endpoint_chat}
RENDERERS = {"letters": letters, "chat template": chat_template}
