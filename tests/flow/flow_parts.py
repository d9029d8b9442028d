"""Real parts for whole-loop tests: the command as a process, the official client, a judge at an endpoint of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from openclaw_rl.core.message import Json

START_S = 120.0
KEY = "sk-test"
LEARN_AT_ONCE = """
[train]
batch_size = 2
min_batch = 1
max_wait_s = 0.1
[trainer]
rank = 4
lr = 1e-3
[judge]
votes = 1
"""


@dataclass(slots=True)
class Served:
    """A running `openclaw-rl serve`."""

    process: subprocess.Popen[bytes]
    url: str
    home: Path
    log: Path

    async def get(self, path: str) -> dict[str, Json]:
        async with aiohttp.ClientSession() as session, session.get(self.url + path, headers=headers()) as response:
            body: dict[str, Json] = await response.json()
            assert response.status == 200, body
            return body

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)


def headers() -> dict[str, str]:
    return {"Authorization": f"Bearer {KEY}"}


def start(home: Path, *options: str, config: str = LEARN_AT_ONCE, model: str = "bundled") -> Served:
    """Starts the command and waits until it listens; fails with its log where it does not."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.toml").write_text(config, "utf-8")
    log = home.with_suffix(".log")
    command = [sys.executable, "-m", "openclaw_rl", "serve", "--home", str(home), "--port", "0", "--model", model]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, "--api-key", KEY, *options], stdout=out, stderr=out, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        found = re.search(r"at (http://\S+)/v1", log.read_text("utf-8", "replace"))
        if found:
            return Served(process, found[1], home, log)
        if process.poll() is not None:
            break
        time.sleep(0.05)
    process.kill()
    pytest.fail(f"the server did not come up:\n{log.read_text('utf-8', 'replace')[-3000:]}")


@dataclass(slots=True)
class Judging:
    """An OpenAI-style endpoint that judges by rule: a next message with "please" in it is a correction."""

    url: str = ""
    hint: str = "Write the answer in plain sentences, without any markdown."
    is_away: bool = False
    asked: int = 0
    refused: int = 0
    runner: web.AppRunner | None = field(default=None, repr=False)

    async def answer(self, request: web.Request) -> web.Response:
        if self.is_away:
            self.refused += 1
            return web.json_response({"error": {"message": "away"}}, status=503)
        self.asked += 1
        system, user = (item["content"] for item in (await request.json())["messages"])
        is_correction = "please" in user.rpartition("<<<next")[2].lower()
        if "HINT_START" in system:
            text = f"[HINT_START]\n{self.hint}\n[HINT_END]\n\\boxed{{1}}" if is_correction else "\\boxed{-1}"
        else:
            text = "\\boxed{-1}" if is_correction else "\\boxed{1}"
        return web.json_response({"choices": [{"message": {"role": "assistant", "content": text}}]})
