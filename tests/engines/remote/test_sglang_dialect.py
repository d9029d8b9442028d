"""What SGLang's own source asks for beyond what vLLM does."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp.test_utils import TestServer
from remote_servers import MODEL, PROMPT, a_server, engine_on, said

from openclaw_rl.core.completion import Finish
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.engines.remote.client import RemoteEngine
from openclaw_rl.engines.remote.replica import new_launch
from openclaw_rl.engines.remote.sglang import Sglang
from openclaw_rl.engines.settings import EngineKind, EngineSettings, RemoteSettings
from openclaw_rl.errors import EngineError
from openclaw_rl.testing.sglang_server import sglang_app


@pytest.mark.parametrize("is_incremental", [False, True])
@pytest.mark.parametrize("is_old", [False, True])
async def test_events_of_all_or_of_what_is_new_and_old_names_of_routes(is_incremental: bool, is_old: bool) -> None:
    app = sglang_app(a_server(cached=3), is_incremental=is_incremental, is_old=is_old)
    async with TestServer(app) as running:
        remote = RemoteSettings(urls=(str(running.make_url("/")),))
        engine = await RemoteEngine.start(EngineSettings(kind=EngineKind.SGLANG, remote=remote), MODEL, rank=4)
        try:
            tokens = await said(engine, Sampling(9, top_logprobs=2))
            assert [token.token for token in tokens] == list(range(42, 51))
            assert all(len(token.top) == 2 for token in tokens)
            assert (await engine.stats()).prompt_tokens_reused == 3
            assert engine.info.context_length == 513 - 7
        finally:
            await engine.aclose()


async def test_stop_ids_are_heeded_which_ignoring_ends_would_prevent() -> None:
    async with engine_on(a_server(), kind=EngineKind.SGLANG) as engine:
        tokens = await said(engine, Sampling(20, stop_ids=(45,)))
        assert [token.token for token in tokens] == [42, 43, 44, 45] and tokens[-1].finish is Finish.STOP
        assert len(await said(engine, Sampling(20))) == 20  # without any, nothing but its length ends an answer


async def test_prompts_are_let_go_of_only_while_nothing_runs() -> None:
    server = a_server()
    async with engine_on(server, kind=EngineKind.SGLANG) as engine:
        server.engine._hold = asyncio.Event()
        answer = asyncio.create_task(said(engine, Sampling(5)))
        while not server.asked or server.asked[-1]["input_ids"] != list(PROMPT.tokens):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        with pytest.raises(EngineError, match="did not let go") as found:
            await engine.flush()
        assert "while it is idle" in found.value.fix
        server.engine._hold.set()
        await answer
        await engine.flush()
        assert server.flushed == 1


def test_the_command_gives_what_the_servers_own_checks_ask_for() -> None:
    words, environment = Sglang().command(new_launch(RemoteSettings(), MODEL, rank=16, versions=2))
    given = {words[at]: words[at + 1] for at in range(3, len(words) - 1) if words[at].startswith("--")}
    assert int(given["--max-loaded-loras"]) >= int(given["--max-loras-per-batch"])  # or it does not start
    assert (given["--max-lora-rank"], given["--grammar-backend"]) == ("16", "llguidance")
    assert environment == {"SGLANG_RETURN_ORIGINAL_LOGPROB": "1"}  # or log-probabilities are after the temperature
