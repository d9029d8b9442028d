"""A trainer elsewhere, for real: the server as a process, the example as its client, a correction that is learned."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import aiohttp
import pytest
from flow_parts import KEY, Served, headers, start

from openclaw_rl.core.message import Json
from openclaw_rl.home.models import model_folder

ROOT = Path(__file__).parent.parent.parent
CONFIG = """
[train]
batch_size = 1
min_batch = 1
[trainer]
kind = "external"
rank = 4
alpha = 8.0
lease_s = 6.0
"""
WISH = "Write plain sentences without any markdown."


async def call(server: Served, path: str, body: Json = None) -> tuple[dict[str, Json], dict[str, str]]:
    async with (
        aiohttp.ClientSession(headers=headers()) as session,
        session.post(server.url + path, json=body or {}) as response,
    ):
        assert response.status in (200, 204), await response.text()
        found = {name.lower(): value for name, value in response.headers.items()}
        return ({} if response.status == 204 else await response.json()), found


async def ask(server: Served) -> dict[str, str]:
    messages: Json = [{"role": "user", "content": "Mia has 5 apples and gets 7 more."}]
    body: Json = {"messages": messages, "max_tokens": 200, "temperature": 0.0}
    return (await call(server, "/v1/chat/completions", body))[1]


async def leased(server: Served) -> str:
    for _ in range(60):
        batch, _ = await call(server, "/v1/rl/training/leases", {"wait_s": 5})
        if batch:
            return str(batch["lease"])
    raise AssertionError("no batch was offered")


def client(server: Served, program: str, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, f"examples/{program}", server.url, KEY, str(model_folder("bundled")), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("program", ["external_trainer.py", "external_trl.py"])
async def test_a_correction_is_learned_by_a_trainer_elsewhere(
    tmp_path: Path, running: list[Served], program: str
) -> None:
    if program == "external_trl.py" and find_spec("trl") is None:
        pytest.skip("trl is not installed: `make test-external` brings it")
    running.append(server := start(tmp_path / "home", config=CONFIG))
    turn = (await ask(server))["x-openclaw-rl-turn"]
    await call(server, "/v1/feedback", {"response_id": turn, "score": -1, "text": WISH})
    await leased(server)  # by one who then dies
    server.end(signal.SIGKILL)
    running.append(server := start(tmp_path / "home", config=CONFIG))
    await leased(server)  # again, by another who dies: his lease ends after 6 s
    trainer = client(server, program, "--steps", "1")
    try:
        said = (await asyncio.to_thread(trainer.communicate, timeout=600))[0].decode()
    finally:
        trainer.kill()
    assert "handed back lease=" in said, said
    rows: list[dict[str, Json]] = []
    for _ in range(1200):
        rows = (await server.get("/v1/rl/versions?learned=true"))["versions"]  # type: ignore[assignment]
        if len(rows) > 1 and "candidate" not in str(rows):
            break
        await asyncio.sleep(0.25)
    found = [(row["version"], row["status"]) for row in rows]
    assert found == [("shared.0", "live"), ("shared.1", "live")], (said, rows[-1]["why"], rows[-1]["metrics"])
    assert (await ask(server))["x-openclaw-rl-version"] == "shared.1"
