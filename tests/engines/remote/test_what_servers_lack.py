"""Servers that are not what is needed, or stop being it: each with a message that names what mends it."""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from remote_servers import MODEL, PROMPT, a_server, engine_on, said

from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.engines.remote.client import RemoteEngine
from openclaw_rl.engines.settings import EngineKind, EngineSettings, RemoteSettings
from openclaw_rl.errors import AdapterError, ConfigError, EngineError, ModelError, RequestError
from openclaw_rl.testing.folders import an_adapter


def _other_cut(text: str) -> list[int]:
    return [1, 2, 3]


VLLM, SGLANG = EngineKind.VLLM, EngineKind.SGLANG
BOTH = pytest.mark.parametrize("kind", [VLLM, SGLANG])


@pytest.mark.parametrize(
    ("kind", "changes", "problem", "fix"),
    [
        (VLLM, {"cut": _other_cut}, "cuts text into other tokens", "serve the same model"),
        (VLLM, {"takes_adapters": False}, "loads no adapters while it runs", "VLLM_ALLOW_RUNTIME_LORA_UPDATING"),
        (VLLM, {"most_rank": 2}, "no adapters of rank 4.*max_lora_rank 2", "--max-lora-rank 4"),
        (VLLM, {"is_raw": False}, "not the model's own", "--logprobs-mode raw_logprobs"),
        (VLLM, {"gives_ids": False}, "without token ids", "update vllm"),
        (VLLM, {"key": "secret"}, "refuses the key", "engine.remote.api_key"),
        (SGLANG, {"cut": _other_cut}, "cuts text into other tokens", "serve the same model"),
        (SGLANG, {"takes_adapters": False}, "loads no adapters while it runs", "--enable-lora"),
        (SGLANG, {"most_rank": 2}, "no adapters of rank 4.*largest rank is 2", "--max-lora-rank 4"),
        (SGLANG, {"is_raw": False}, "not the model's own", "SGLANG_RETURN_ORIGINAL_LOGPROB=1"),
        (SGLANG, {"gives_ids": False}, "without token ids", "update sglang"),
        (SGLANG, {"key": "secret"}, "refuses the key", "engine.remote.api_key"),
    ],
)
async def test_what_a_server_lacks_is_found_at_the_start(
    kind: EngineKind, changes: dict[str, object], problem: str, fix: str
) -> None:
    with pytest.raises((EngineError, ModelError), match=problem) as found:
        async with engine_on(a_server(**changes), kind=kind):
            pass
    assert fix in found.value.fix


@pytest.mark.parametrize(
    ("name", "is_warned"),
    [("Qwen/Qwen3-8B", True), ("/elsewhere/weights", False), ("/cache/models--a--Weights/snapshots/12ab", False)],
)
async def test_a_model_of_another_name_is_asked_about(
    name: str, is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with engine_on(a_server(model=name)):
            pass
    assert (f"serves {name}" in caplog.text) is is_warned


@BOTH
async def test_an_adapter_of_a_larger_rank_or_one_that_the_server_cannot_read_is_refused(
    kind: EngineKind, tmp_path: Path
) -> None:
    server = a_server()
    async with engine_on(server, kind=kind) as engine:
        server.most_rank = 2
        with pytest.raises(AdapterError, match=r"does not take version shared\.1") as found:
            await engine.load(an_adapter(tmp_path, 1))
        assert "--max-lora-rank" in found.value.fix
        unseen = an_adapter(tmp_path, 2)
        shutil.rmtree(unseen.folder)
        with pytest.raises(AdapterError, match=r"does not take version shared\.2") as found:
            await engine.load(unseen)
        assert "the same path must lead to the same files there" in found.value.fix
        assert len(await said(engine, Sampling(3))) == 3 and not server.adapters


@BOTH
async def test_a_full_server_is_a_full_queue_and_serves_again_later(kind: EngineKind) -> None:
    server = a_server()
    async with engine_on(server, kind=kind) as engine:
        server.is_full = True
        with pytest.raises(RequestError) as found:
            await said(engine, Sampling(3))
        assert (found.value.status, found.value.code) == (429, "queue_full")
        server.is_full = False
        assert len(await said(engine, Sampling(3))) == 3


@BOTH
async def test_a_server_that_falls_silent_in_an_answer_loses_none_of_it(kind: EngineKind) -> None:
    server = a_server()
    async with engine_on(server, kind=kind, silent_s=0.3) as engine:
        server.engine._hold = asyncio.Event()  # it says one token and no more
        answer = asyncio.create_task(said(engine, Sampling(20)))
        while (await engine.stats()).restarts == 0:  # noqa: ASYNC110  it is the engine that finds out
            await asyncio.sleep(0.01)
        assert not answer.done()
        server.engine._hold.set()
        assert [token.token for token in await answer] == list(range(42, 62))


@BOTH
async def test_a_key_that_is_refused_later_is_named(kind: EngineKind) -> None:
    server = a_server()
    async with engine_on(server, kind=kind) as engine:
        server.key = "another"
        with pytest.raises(EngineError, match="refuses the key") as found:
            await said(engine, Sampling(3))
        assert "engine.remote.api_key" in found.value.fix


@BOTH
async def test_a_version_that_a_server_lost_is_loaded_again_for_answers_and_scores(
    kind: EngineKind, tmp_path: Path
) -> None:
    server = a_server()
    async with engine_on(server, kind=kind) as engine:
        await engine.load(an_adapter(tmp_path, 1))
        server.adapters.clear()
        assert len(await said(engine, Sampling(5), PolicyVersion(SHARED, 1))) == 5
        server.adapters.clear()
        assert len((await engine.score(PROMPT, start=1, version=PolicyVersion(SHARED, 1))).logp) == 4
        assert len(server.adapters) == 1


async def test_a_server_that_is_not_there_and_one_of_another_kind_are_told_apart() -> None:
    async def listed(request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "gpt"}]})

    app = web.Application()
    app.router.add_get("/v1/models", listed)
    app.router.add_get("/version", listed)
    async with TestServer(app) as other:
        for url, problem in ((str(other.make_url("/")), "not a vLLM server"), ("http://127.0.0.1:9", "no vllm server")):
            settings = EngineSettings(kind=EngineKind.VLLM, remote=RemoteSettings(urls=(url,)))
            with pytest.raises(EngineError, match=problem):
                await RemoteEngine.start(settings, MODEL, rank=4)
    with pytest.raises(ConfigError, match="http://"):
        RemoteSettings(urls=("gpu-box:8000",))
    with pytest.raises(ConfigError, match="gather_ms"):
        RemoteSettings(gather_ms=-1.0)
    settings = EngineSettings(kind=EngineKind.VLLM, remote=RemoteSettings(python="/nonexistent/python"))
    with pytest.raises(EngineError, match="cannot be started"):
        await RemoteEngine.start(settings, MODEL, rank=4)
