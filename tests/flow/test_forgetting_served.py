"""What was begun and cut off is finished by the server when it starts, and what it makes again is served."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from flow_parts import Served, start
from forgetting_parts import CANARY, SETTINGS, lived, make_home

from openclaw_rl.core.message import Json
from openclaw_rl.core.version import SHARED
from openclaw_rl.store.db import Store
from openclaw_rl.store.forget.selection import ForgetTarget
from openclaw_rl.tiny.world import bundled_model

CONFIG = """
[trainer]
rank = 4
alpha = 8.0
nice = 0
[publish]
gate = false
"""


@pytest.mark.timeout(900)
async def test_a_server_finishes_what_was_begun_and_serves_what_it_made_again(
    tmp_path: Path, running: list[Served]
) -> None:
    home = await make_home(tmp_path / "home", bundled_model(), SETTINGS)
    await lived(home, with_canary=True)
    await home.begin_forgetting(ForgetTarget(user="ann"))
    await home.store.aclose()  # and here it was cut off
    running.append(server := start(home.folder, config=CONFIG))
    assert not [path for path in home.folder.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]
    served: Json = None
    for _ in range(1200):  # two steps, where many share the machine
        served = (await server.get("/v1/rl/versions"))["current"]
        if served == {SHARED: "shared.5"}:
            break
        await asyncio.sleep(0.1)
    assert served == {SHARED: "shared.5"}
    assert server.end() == 0
    store = await Store.open(home.folder)
    row = await store.version(await store.current(SHARED))
    assert await store.forgettings.unfinished() is None
    await store.aclose()
    (path,) = (home.folder / "certificates").iterdir()
    rebuilt = json.loads(path.read_text("utf-8"))["rebuilt"]
    assert [item["version"] for item in rebuilt] == ["shared.4", "shared.5"]
    assert row is not None and (row.digest, row.turns) == (rebuilt[-1]["digest"], ("b5",))
