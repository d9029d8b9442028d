"""The smaller part of `benchmarks.kills`: the real command with its engine and trainer as processes of their own."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from aiohttp import web

from benchmarks.common import progress
from benchmarks.http import KEY, bundled_model
from benchmarks.kill_clients import CLIENTS, Target, Told, lost, not_committed, talk, trained_twice
from openclaw_rl.doctor.check import check_home
from openclaw_rl.engines import EngineSettings, LocalEngine
from openclaw_rl.testing.listening import listening

START_S = 180.0
END_S = 60.0  # for a killed or ended server to be gone
LONGEST_S = 12.0  # between two kills
CONFIG = """
[engine]
max_restarts = 1000
[train]
batch_size = 4
min_batch = 1
max_wait_s = 0.2
max_lag = 1000
[trainer]
rank = 4
[judge]
votes = 1
retry_s = 0.1
retry_max_s = 0.5
url = "%s"
[publish]
gate = false
"""
CHILDREN = {"engine": "openclaw_rl.engines.local.host", "trainer": "openclaw_rl.trainers.worker"}


@dataclass(slots=True)
class Server:
    """The running command."""

    process: asyncio.subprocess.Process
    log: Path
    seconds: list[float] = field(default_factory=list)


async def run(kills: int) -> dict[str, float]:
    """Kills server, engine and trainer in turn, at random instants; what was true afterwards."""
    source, told, target = random.Random(7), Told(), Target()
    starts: list[float] = []
    uncommitted, stalls, of_kind = 0, 0, dict.fromkeys(("server", "engine", "trainer"), 0)
    model = bundled_model()
    assert model is not None
    loads = [await _load_s(model) for _ in range(3)]
    with tempfile.TemporaryDirectory() as place:
        home = Path(place) / "home"
        home.mkdir()
        async with judging() as url:
            (home / "config.toml").write_text(CONFIG % url, "utf-8")
            async with asyncio.TaskGroup() as group:
                server = await _started(home, target, starts)
                for client in range(CLIENTS):
                    group.create_task(talk(client, "real", target, told, max_tokens=60))
                for number in range(kills):
                    await asyncio.sleep(source.random() * LONGEST_S)
                    kind = ("engine", "trainer", "server")[number % 3]
                    pid = server.process.pid if kind == "server" else _child(server.process.pid, CHILDREN[kind])
                    if pid is None:  # it is being started again already
                        pid, kind = server.process.pid, "server"
                    os.kill(pid, signal.SIGKILL)
                    of_kind[kind] += 1
                    if kind == "server":
                        target.url = None
                        stalls += not await _ended(server)
                        uncommitted += len(not_committed(home, told.versions))
                        told.versions.clear()
                        server = await _started(home, target, starts)
                    progress(f"real kill {number + 1}: {kind}, {len(told.acknowledged)} acknowledged")
                target.is_over = True
            server.process.send_signal(signal.SIGTERM)
            stalls += not await _ended(server)
        uncommitted += len(not_committed(home, told.versions))
        twice, consumed, versions = await trained_twice(home)
        report = await asyncio.to_thread(check_home, home)
        unsound = [item.what for item in report.findings if "never finished" not in item.what]
        for line in unsound[:5]:
            progress(f"real: {line}")
        return {
            "kills": kills,
            **{f"kills_{kind}": count for kind, count in of_kind.items()},
            "stalls": stalls,
            "acknowledged": len(told.acknowledged),
            "lost_turns": await lost(home, told),
            "trained_twice": twice,
            "uncommitted_versions_served": uncommitted,
            "check_findings": len(unsound),
            "turns_trained": consumed,
            "versions": versions,
            "broken_off": told.broken_off,
            "wrong_status": told.wrong_status,
            "restart_s_p50": round(median(starts), 2),
            "model_load_s_p50": round(median(loads), 2),
        }


async def _load_s(model: Path) -> float:
    """How long the engine's process takes until its model is loaded."""
    begin = time.monotonic()
    async with asyncio.timeout(START_S):
        engine = await LocalEngine.start(EngineSettings(model=str(model), device="cpu"))
    seconds = time.monotonic() - begin
    await engine.aclose()
    return seconds


async def _started(home: Path, target: Target, starts: list[float]) -> Server:
    log = home.with_suffix(".log")
    begin = time.monotonic()
    command = ["serve", "--home", str(home), "--port", "0", "--api-key", KEY]
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "openclaw_rl", *command, stdout=out, stderr=out
        )
    while time.monotonic() - begin < START_S and process.returncode is None:
        found = re.search(r"at (http://\S+)/v1", log.read_text("utf-8", "replace"))
        if found:
            starts.append(time.monotonic() - begin)
            target.url = found[1]
            return Server(process, log)
        await asyncio.sleep(0.02)
    if process.returncode is None:
        process.kill()
    raise RuntimeError(f"the server did not come up: {log.read_text('utf-8', 'replace')[-2000:]}")


async def _ended(server: Server) -> bool:
    """Waits until it is gone; False where it had to be killed for that."""
    try:
        async with asyncio.timeout(END_S):
            await server.process.wait()
    except TimeoutError:
        progress(f"a stall: {server.process.pid} does not end: {server.log.read_text('utf-8', 'replace')[-2000:]}")
        server.process.kill()
        await server.process.wait()
        return False
    return True


def _child(parent: int, module: str) -> int | None:
    """The process that this one started to run the module; None while there is none."""
    for name in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        try:
            if module in Path(f"/proc/{name}/cmdline").read_text():
                return int(name)
        except OSError:
            continue
    return None


@asynccontextmanager
async def judging() -> AsyncIterator[str]:
    """The address of an OpenAI-style endpoint that judges by rule."""

    async def answer(request: web.Request) -> web.Response:
        system, user = (item["content"] for item in (await request.json())["messages"])
        is_correction = "no" in user.rpartition("<<<next")[2].lower()
        text = "\\boxed{-1}" if is_correction else "\\boxed{1}"
        if "HINT_START" in system and is_correction:
            text = "[HINT_START]\nWrite the answer in plain sentences.\n[HINT_END]\n\\boxed{1}"
        return web.json_response({"choices": [{"message": {"role": "assistant", "content": text}}]})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    async with listening(app) as url:
        yield f"{url}/v1"
