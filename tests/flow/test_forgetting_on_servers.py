"""Forgetting where a server of the model cannot be asked to let go of the prompts it has read."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest
from aiohttp.test_utils import TestServer
from flow_parts import Served, headers, start

from openclaw_rl.core.message import Json
from openclaw_rl.engines.remote.model import text_ids
from openclaw_rl.home.models import model_folder
from openclaw_rl.testing.engine import ScriptedEngine
from openclaw_rl.testing.model_servers import ModelServer, vllm_app

CONFIG = """
[engine]
kind = "vllm"
[engine.remote]
urls = ["{url}"]
[trainer]
rank = 4
nice = 0
"""


async def _forgetting(server: Served) -> dict[str, Json]:
    (found,) = (await server.get("/v1/rl/forget"))["forgettings"]
    return found


@pytest.mark.timeout(300)
async def test_it_waits_says_why_and_serves_meanwhile(tmp_path: Path, running: list[Served]) -> None:
    model = model_folder("bundled")
    engine = ScriptedEngine(lambda *asked: [40, 41, 42, 2], context_length=2049)
    double = ModelServer(engine, lambda text: list(text_ids(model, text)), 2049, forgets_prompts=False)
    async with TestServer(vllm_app(double)) as servers:
        config = CONFIG.format(url=str(servers.make_url("/")))
        server = await asyncio.to_thread(start, tmp_path / "home", config=config)
        running.append(server)
        async with aiohttp.ClientSession(server.url, headers=headers()) as http:
            body = {"model": "default", "messages": [{"role": "user", "content": "Hello"}]}
            own = {"X-User-Id": "ann", "X-Session-Id": "s"}
            async with http.post("/v1/chat/completions", json=body, headers=own) as answer:
                assert answer.status == 200, await answer.text()
            async with http.post("/v1/rl/forget", json={"user": "ann"}) as answer:
                assert answer.status == 200, await answer.text()
            while not (held := await _forgetting(server))["problem"]:  # noqa: ASYNC110  it is another process
                await asyncio.sleep(0.1)
            assert held["phase"] == "erasing" and "VLLM_SERVER_DEV_MODE=1" in str(held["problem"])
            async with http.post("/v1/chat/completions", json=body) as answer:
                assert answer.status == 200, await answer.text()
            double.forgets_prompts = True  # as one that was started again with that
            while (held := await _forgetting(server))["phase"] != "done":  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            assert held["problem"] == "" and double.flushed == 1
