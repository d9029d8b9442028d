"""Real parts for whole-loop tests: the command as a process, the official client, a judge at an endpoint of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from forked_trainer import SETTING

from openclaw_rl.core.message import Json
from openclaw_rl.engines.remote.model import text_ids
from openclaw_rl.home.models import model_folder
from openclaw_rl.testing.engine import ScriptedEngine
from openclaw_rl.testing.model_servers import ModelServer, vllm_app

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
# For tests that need a version, however little it changes: few updates, and at once even if the machine is busy.
LEARN_A_LITTLE = LEARN_AT_ONCE.replace("rank = 4", "rank = 4\nupdates = 4\nnice = 0")
FORKED = LEARN_A_LITTLE.replace("rank = 4", f"rank = 4\n{SETTING}")  # with the fixture `forked_trainers`


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


@asynccontextmanager
async def scripted_model(*, forgets_prompts: bool = True) -> AsyncIterator[tuple[ModelServer, str]]:
    """A double of a server of the bundled model, and the settings to use it: for tests in which no weights matter."""
    model = model_folder("bundled")
    engine = ScriptedEngine(lambda *asked: [40, 41, 42, 2], context_length=2049)
    double = ModelServer(engine, lambda text: list(text_ids(model, text)), 2049, forgets_prompts=forgets_prompts)
    async with TestServer(vllm_app(double)) as servers:
        yield double, f'[engine]\nkind = "vllm"\n[engine.remote]\nurls = ["{servers.make_url("/")}"]\n'


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
