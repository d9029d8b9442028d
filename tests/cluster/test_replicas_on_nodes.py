"""Servers of a model on the nodes of a real Ray cluster: a server is killed, a node is lost, the program is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

import openclaw_rl
from openclaw_rl.cluster.client import Cluster
from openclaw_rl.cluster.roles import Group
from openclaw_rl.core.prompt import Prompt, Segment
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.engines.remote.client import RemoteEngine
from openclaw_rl.engines.settings import EngineKind, EngineSettings, RemoteSettings
from openclaw_rl.errors import ConfigError
from openclaw_rl.home.models import model_folder
from openclaw_rl.testing.folders import an_adapter
from openclaw_rl.testing.ray_nodes import RayNodes, is_alive

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
MODEL = model_folder("bundled")
PLACE_S = 120.0
SERVER = """#!/bin/sh
export PYTHONPATH={source} OPENCLAW_RL_TEST_PIDS={pids}
shift 2
exec {python} -m openclaw_rl.testing.counting_vllm "$@"
"""
# What serves on a cluster, to be killed: prints a line once it is up.
PROGRAM = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_replicas_on_nodes import engine_on
async def main():
    async with engine_on({address!r}, Path({folder!r})) as (engine, pids):
        print("up", flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


def prompt(name: str) -> Prompt:
    """One of a session of its own, so that sessions are spread."""
    return Prompt((5, 9, 12, 30, 41), (Segment(0, 5, name),))


@asynccontextmanager
async def engine_on(address: str, folder: Path, replicas: int = 2) -> AsyncIterator[tuple[RemoteEngine, Path]]:
    """Servers on the cluster's nodes, and the file with a line for each start of one."""
    python, pids = folder / "python", folder / "pids"
    source = str(Path(openclaw_rl.__file__).parents[1])
    python.write_text(SERVER.format(python=sys.executable, source=source, pids=pids))
    python.chmod(0o755)
    async with aclosing(await Cluster.join(address, [Group("policy", replicas)], place_s=PLACE_S)) as cluster:
        remote = RemoteSettings(python=str(python), check_s=0.2, start_s=PLACE_S)
        settings = EngineSettings(kind=EngineKind.VLLM, remote=remote)
        hosts = [cluster.host("policy", number) for number in range(replicas)]
        async with aclosing(await RemoteEngine.start(settings, MODEL, rank=4, hosts=hosts)) as engine:
            yield engine, pids


def started(pids: Path) -> list[list[int]]:
    """Each start: the server's process, what computes for it, its port."""
    return [[int(word) for word in line.split()] for line in pids.read_text().splitlines()]


async def answer(engine: RemoteEngine, name: str, tokens: int, number: int) -> list[int]:
    version = PolicyVersion(SHARED, number)
    return [token.token async for token in engine.generate(prompt(name), Sampling(tokens), version)]


async def until_up(engine: RemoteEngine, restarts: int) -> None:
    """Returns once the engine has come back so often, with all its servers."""
    async with asyncio.timeout(PLACE_S):
        while (await engine.stats()).restarts < restarts or not all(one.is_up for one in engine._replicas):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def gone(pids: list[int]) -> None:
    async with asyncio.timeout(60):
        while any(map(is_alive, pids)):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def test_answers_outlive_a_killed_server_and_a_lost_node(cluster: RayNodes, tmp_path: Path) -> None:
    async with engine_on(cluster.address, tmp_path) as (engine, pids):
        for number in (1, 2):
            await engine.load(an_adapter(tmp_path, number))
        first = started(pids)
        assert len(first) == 2
        answers = [asyncio.create_task(answer(engine, f"a{number}", 60, 2)) for number in range(6)]
        await asyncio.sleep(0.4)
        os.kill(first[0][0], signal.SIGKILL)
        assert await asyncio.gather(*answers) == [list(range(42, 102))] * 6
        await until_up(engine, 1)
        await gone(first[0][:2])  # what computed for it is ended as well

        answers = [asyncio.create_task(answer(engine, f"b{number}", 100, 1)) for number in range(6)]
        await asyncio.sleep(0.4)
        cluster.kill(cluster.with_a_place())
        assert await asyncio.gather(*answers) == [list(range(42, 142))] * 6
        cluster.wait(cluster.add(2))
        await until_up(engine, 2)
        assert sum(is_alive(start[0]) for start in started(pids)) == 2
        assert all(set(one.loaded) == {PolicyVersion(SHARED, 1), PolicyVersion(SHARED, 2)} for one in engine._replicas)
        assert await answer(engine, "c", 3, 2) == [42, 43, 44]
    await gone([pid for start in started(pids) for pid in start[:2]])


async def test_nothing_is_left_where_the_program_is_killed(cluster: RayNodes, tmp_path: Path) -> None:
    text = PROGRAM.format(tests=str(Path(__file__).parent), address=cluster.address, folder=str(tmp_path))
    program = await asyncio.create_subprocess_exec(sys.executable, "-c", text, stdout=asyncio.subprocess.PIPE)
    assert program.stdout is not None
    async with asyncio.timeout(PLACE_S):
        assert await program.stdout.readline() == b"up\n"
    first = started(tmp_path / "pids")
    assert len(first) == 2 and all(is_alive(pid) for start in first for pid in start[:2])
    program.kill()
    await program.wait()
    await gone([pid for start in first for pid in start[:2]])
    async with engine_on(cluster.address, tmp_path) as (engine, _):  # and the room is free again
        assert (await engine.stats()).restarts == 0


async def test_the_engine_outlives_what_speaks_with_the_cluster(cluster: RayNodes, tmp_path: Path) -> None:
    async with engine_on(cluster.address, tmp_path, replicas=1) as (engine, pids):
        await engine.load(an_adapter(tmp_path, 1))
        speaks = engine._replicas[0].host._cluster._child  # type: ignore[attr-defined]
        one = asyncio.create_task(answer(engine, "a", 60, 1))
        await asyncio.sleep(0.4)
        os.kill(speaks.pid, signal.SIGKILL)
        assert await one == list(range(42, 102))  # by the first server, which Ray ends soon, or by the next
        await until_up(engine, 1)
        assert len(started(pids)) == 2
        assert await answer(engine, "b", 3, 1) == [42, 43, 44]


async def test_what_cannot_be_placed_is_said_before_anything_starts(cluster: RayNodes) -> None:
    for group, problem in (
        (Group("policy", 2, gpus=1), "2 GPUs are asked for (2 for the policy), and the cluster has 0"),
        (Group("policy", 90), "no node has room for all 90 processes of the policy, which take 1 CPUs each"),
        (Group("trainer", 2, cpus=2, begins_here=True), "this machine has no room for all 2 processes of the trainer"),
    ):
        with pytest.raises(ConfigError) as found:
            await Cluster.join(cluster.address, [group])
        assert problem in str(found.value)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere.invalid:6379", "nonsense"])
async def test_a_cluster_that_is_not_there(address: str) -> None:
    with pytest.raises(ConfigError, match=f"there is no Ray cluster at {address}"):
        await Cluster.join(address, [Group("policy", 1)])
