"""Undo on a running server: a pin holds through a kill, and what was trained behind it is served when it is lifted."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import aiohttp
import pytest
from flow_parts import Served, headers, start
from forked_trainer import SETTING

from openclaw_rl.core.message import Json

CONFIG = """
[train]
batch_size = 1
min_batch = 1
[trainer]
rank = 4
LAUNCHER
updates = 4
lr = 1e-3
nice = 0
""".replace("LAUNCHER", SETTING)
pytestmark = pytest.mark.usefixtures("forked_trainers")
WISH = "Write plain sentences without any markdown."


async def posted(server: Served, path: str, body: Json = None) -> dict[str, Json]:
    async with (
        aiohttp.ClientSession(headers=headers()) as session,
        session.post(server.url + path, json=body) as response,
    ):
        found: dict[str, Json] = await response.json()
        assert response.status == 200, found
        return {**found, "headers": dict(response.headers)}


async def ask(server: Served) -> tuple[str, str]:
    """A turn and the version that answered it."""
    body: Json = {
        "messages": [{"role": "user", "content": "Mia has 5 apples and gets 7 more."}],
        "max_tokens": 400,
        "temperature": 0.0,
    }
    told = (await posted(server, "/v1/chat/completions", body))["headers"]
    assert isinstance(told, dict)
    found = {name.lower(): str(value) for name, value in told.items()}
    return found["x-openclaw-rl-turn"], found["x-openclaw-rl-version"]


async def statuses(server: Served) -> list[str]:
    rows = (await server.get("/v1/rl/versions?learned=true"))["versions"]
    assert isinstance(rows, list)
    return [f"{row['version']} {row['status']}" for row in rows if isinstance(row, dict)]


async def taught(server: Served, many: int) -> None:
    """A correction; returns once there are so many versions, all settled."""
    turn, _ = await ask(server)
    await posted(server, "/v1/feedback", {"response_id": turn, "score": -1, "text": WISH})
    found: list[str] = []
    for _ in range(3000):  # a step may take a minute where many share the machine
        found = await statuses(server)
        if len(found) > many and not any("candidate" in row for row in found):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(found)


@pytest.mark.timeout(900)
async def test_a_pin_holds_through_a_kill_and_training_goes_on_behind_it(tmp_path: Path, running: list[Served]) -> None:
    running.append(server := start(tmp_path / "home", config=CONFIG))
    await posted(server, "/v1/rl/pin", {"version": 0})
    await taught(server, 1)
    assert (await statuses(server), (await ask(server))[1]) == (["shared.0 live", "shared.1 live"], "shared.0")
    asked: Json = {"versions": [0, 1], "prompts": ["Hi"], "max_tokens": 8}
    compared = (await posted(server, "/v1/rl/compare", asked))["compared"]
    assert isinstance(compared, list) and isinstance(compared[0], dict)
    answers = compared[0]["answers"]
    assert isinstance(answers, list) and len(answers) == 2
    await posted(server, "/v1/rl/freeze")
    server.end(signal.SIGKILL)
    running.append(again := start(tmp_path / "home", config=CONFIG))
    assert (await ask(again))[1] == "shared.0"
    assert (await again.get("/v1/rl/versions"))["frozen_since"] is not None
    assert (await posted(again, "/v1/rl/unpin", {}))["version"] == "shared.1"
    assert (await ask(again))[1] == "shared.1"
