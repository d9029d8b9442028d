"""What `benchmarks.cluster` measures on: nodes, servers placed on them, and the program that places them."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import aiohttp

from benchmarks.http import KEY
from benchmarks.kills_real import judging
from openclaw_rl.cluster.client import Cluster
from openclaw_rl.cluster.roles import Group
from openclaw_rl.engines.remote.client import RemoteEngine
from openclaw_rl.engines.settings import EngineKind, EngineSettings, RemoteSettings
from openclaw_rl.home.models import model_folder
from openclaw_rl.testing.counting_vllm import PIDS
from openclaw_rl.testing.ray_nodes import RayNodes, is_alive

ROOT = Path(__file__).parent.parent
START_S = 600.0
CPUS = 0.25  # of each process: three nodes of two CPUs have room for all, and for one node less
SERVER = """#!/bin/sh
export PYTHONPATH={path} {pids_name}={pids} OMP_NUM_THREADS=1
shift 2
exec {python} -m benchmarks.cluster_server "$@"
"""
# A step of few updates on few requests: with the defaults one takes 130 s beside clients that never pause on two cores,
# and two of them are waited for after each kill.
CONFIG = """
[engine]
kind = "vllm"
[engine.remote]
python = "{python}"
replicas = 2
start_s = 600.0
check_s = 0.5
[cluster]
place_s = 300.0
[cluster.policy]
cpus_each = 0.25
[cluster.trainer]
cpus_each = 0.25
[train]
batch_size = 4
min_batch = 1
max_wait_s = 0.2
max_lag = 1000
[trainer]
rank = 4
ranks = 2
updates = 4
[teach]
other_requests = 4
checks = 0
[judge]
votes = 1
retry_s = 0.1
retry_max_s = 0.5
url = "{judge}"
[publish]
gate = false
"""


@dataclass(slots=True)
class Ground:
    """A folder, and a cluster."""

    folder: Path
    nodes: RayNodes

    @property
    def python(self) -> Path:
        """What stands for a Python that has vLLM."""
        path = self.folder / "python"
        if not path.exists():
            search = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
            text = SERVER.format(path=search, pids_name=PIDS, pids=self.folder / "pids", python=sys.executable)
            path.write_text(text)
            path.chmod(0o755)
        return path


def started(ground: Ground, *, alive: bool) -> list[int]:
    """The processes of the model's servers that were ever started, or those that live."""
    path = ground.folder / "pids"
    pids = [int(line) for line in path.read_text().split()] if path.exists() else []
    return [pid for pid in pids if is_alive(pid)] if alive else pids


def ranks_under(pid: int) -> list[int]:
    """The trainer's processes of this program, the first rank's first."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            words = (path.parent / "cmdline").read_bytes().split(b"\0")
            held = dict(one.split(b"=", 1) for one in path.read_bytes().split(b"\0") if b"=" in one)
        except OSError:
            continue
        if b"openclaw_rl.trainers.worker" in words and b"openclaw_rl.cluster.ranks" not in words and b"RANK" in held:
            found[int(held[b"RANK"])] = int(path.parent.name)
    return [found[rank] for rank in sorted(found)]


@asynccontextmanager
async def engine_on(ground: Ground, replicas: int) -> AsyncIterator[RemoteEngine]:
    """The engine alone, on so many servers on nodes."""
    cluster = await Cluster.join(ground.nodes.address, [Group("policy", replicas, cpus=CPUS)], place_s=START_S)
    try:
        remote = RemoteSettings(python=str(ground.python), start_s=START_S)
        hosts = [cluster.host("policy", number) for number in range(replicas)]
        settings = EngineSettings(kind=EngineKind.VLLM, remote=remote)
        async with aclosing(await RemoteEngine.start(settings, model_folder("bundled"), rank=4, hosts=hosts)) as engine:
            yield engine
    finally:
        await cluster.aclose()


@dataclass(slots=True)
class Program:
    """`openclaw-rl serve --cluster`, started again after it was killed."""

    ground: Ground
    _process: asyncio.subprocess.Process | None = None
    _url: str = ""
    _judge: AsyncExitStack = field(default_factory=AsyncExitStack)
    _logs: list[Path] = field(default_factory=list)

    @property
    def home(self) -> Path:
        """Its folder."""
        return self.ground.folder / "home"

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    async def prepare(self) -> None:
        """Its folder and its judge."""
        self.home.mkdir()
        url = await self._judge.enter_async_context(judging())
        (self.home / "config.toml").write_text(CONFIG.format(python=self.ground.python, judge=url), "utf-8")

    async def start(self) -> str:
        """Where it listens. Raises RuntimeError where it does not come up."""
        log = self.ground.folder / f"program{len(self._logs)}.log"
        self._logs.append(log)
        words = ["serve", "--home", str(self.home), "--port", "0", "--api-key", KEY]
        with log.open("wb") as out:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "openclaw_rl", *words, "--cluster", self.ground.nodes.address),
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        async with asyncio.timeout(START_S):
            while not (found := re.search(r"at (http://\S+)/v1", log.read_text("utf-8", "replace"))):
                if self._process.returncode is not None:
                    raise RuntimeError(f"it did not come up: {log.read_text('utf-8', 'replace')[-3000:]}")
                await asyncio.sleep(0.1)
        self._url = found[1]
        return self._url

    async def kill(self) -> None:
        """Kills it, and nothing besides."""
        assert self._process is not None
        self._process.kill()
        await self._process.wait()

    async def end(self) -> None:
        """Ends it in order."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        await self._process.wait()

    async def close(self) -> None:
        """Ends what is left."""
        if self._process is not None and self._process.returncode is None:
            await self.kill()
        await self._judge.aclose()

    async def version(self) -> int:
        """The number of the version that is served."""
        headers = {"Authorization": f"Bearer {KEY}"}
        async with (
            aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=30)) as http,
            http.get(f"{self._url}/v1/rl/status") as answer,
        ):
            status = await answer.json()
        return int(str(status["publish"]["current"]).rpartition(".")[2])

    def served_s(self) -> list[float]:
        """Seconds from a step's end until every server that was up served its version, by the program's own log."""
        made: dict[str, float] = {}
        found = []
        for log in self._logs:
            for line in log.read_text("utf-8", "replace").splitlines():
                if not (words := re.search(r"^(\S+ \S+) .*: (made|serving) version=(\S+)", line)):
                    continue
                at = datetime.strptime(words[1], "%Y-%m-%d %H:%M:%S,%f").timestamp()
                if words[2] == "made":
                    made[words[3]] = at
                elif words[3] in made:
                    found.append(at - made.pop(words[3]))
        return found
