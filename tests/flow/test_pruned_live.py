"""A running server removes the weights that are not kept, says how many are left, and how others are made again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
from flow_parts import Served, headers, scripted_model, start

from openclaw_rl.core.adapter import WEIGHTS
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.store.db import Store
from openclaw_rl.testing.folders import a_small_adapter, add_version

CONFIG = "[publish]\nkeep_versions = 1\n"


async def test_weights_go_while_it_serves_and_who_asks_for_them_is_told(tmp_path: Path, running: list[Served]) -> None:
    store = await Store.open(tmp_path)
    for number in (1, 2, 3):
        await add_version(store, tmp_path, number, a_small_adapter, ())
    await store.set_current(PolicyVersion(SHARED, 0), why="rolled back by hand")
    await store.aclose()
    async with scripted_model() as (_, config):
        running.append(server := await asyncio.to_thread(start, tmp_path, config=CONFIG + config))
        await _pruned(server)
        assert await asyncio.to_thread(server.end) == 0


async def _pruned(server: Served) -> None:
    async with asyncio.timeout(60), aiohttp.ClientSession(server.url, headers=headers()) as http:
        while True:
            async with http.get("/metrics") as answer:
                told = await answer.text()
            if "openclaw_rl_versions_on_disk 1.0" in told:
                break
            await asyncio.sleep(0.1)
        left = await asyncio.to_thread(
            lambda: sorted(path.parent.name for path in server.home.glob(f"versions/*/{WEIGHTS}"))
        )
        assert left == ["shared.3"]
        async with http.post("/v1/rl/rollback", json={"version": 2}) as answer:
            assert answer.status == 409
            assert "replay --version shared.2 --restore" in (await answer.json())["error"]["message"]
        async with http.get("/v1/rl/versions") as answer:
            rows = (await answer.json())["versions"]
        assert [row["pruned_at"] is None for row in rows] == [True, False, False, True]
