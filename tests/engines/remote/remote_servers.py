"""Engines on servers that speak as vLLM and SGLang do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from aiohttp.test_utils import TestServer

from openclaw_rl.core.completion import SampledToken
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.engines.remote.client import RemoteEngine
from openclaw_rl.engines.remote.model import text_ids
from openclaw_rl.engines.settings import EngineKind, EngineSettings, RemoteSettings
from openclaw_rl.home.models import model_folder
from openclaw_rl.testing.engine import ScriptedEngine
from openclaw_rl.testing.model_servers import ModelServer, vllm_app
from openclaw_rl.testing.sglang_server import sglang_app

PROMPT = Prompt((5, 9, 12, 30, 41))
MODEL = model_folder("bundled")
KINDS = {EngineKind.VLLM: vllm_app, EngineKind.SGLANG: sglang_app}


def counting(prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> Sequence[int]:
    """Each id is one more than the last: wherever an answer goes on, one sees whether any is lost or said twice."""
    return tuple(prompt.tokens[-1] + 1 + at for at in range(sampling.max_tokens))


def a_server(**changes: object) -> ModelServer:
    engine = ScriptedEngine(counting, context_length=513)
    return replace(ModelServer(engine, lambda text: list(text_ids(MODEL, text)), 513), **changes)


@asynccontextmanager
async def engine_on(
    *servers: ModelServer, kind: EngineKind = EngineKind.VLLM, **options: object
) -> AsyncIterator[RemoteEngine]:
    """An engine on these servers; `options` are of `engine.remote`."""
    async with AsyncExitStack() as stack:
        running = [await stack.enter_async_context(TestServer(KINDS[kind](server))) for server in servers]
        urls = tuple(str(one.make_url("/")) for one in running)
        remote = replace(RemoteSettings(urls=urls, check_s=0.05), **options)
        engine = await RemoteEngine.start(EngineSettings(kind=kind, remote=remote), MODEL, rank=4)
        stack.push_async_callback(engine.aclose)
        yield engine


async def said(engine: RemoteEngine, sampling: Sampling, version: PolicyVersion = BASE) -> list[SampledToken]:
    return [token async for token in engine.generate(PROMPT, sampling, version)]
