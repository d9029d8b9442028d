"""Forgetting where a server of the model cannot be asked to let go of the prompts it has read."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest
from flow_parts import Served, headers, scripted_model, start

from openclaw_rl.core.message import Json

CONFIG = """
[trainer]
rank = 4
nice = 0
"""


async def _forgetting(server: Served) -> dict[str, Json]:
    (found,) = (await server.get("/v1/rl/forget"))["forgettings"]
    return found


@pytest.mark.timeout(300)
async def test_it_waits_says_why_and_serves_meanwhile(tmp_path: Path, running: list[Served]) -> None:
    async with scripted_model(forgets_prompts=False) as (double, config):
        server = await asyncio.to_thread(start, tmp_path / "home", config=config + CONFIG)
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
