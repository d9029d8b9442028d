"""The trainer's ranks on the nodes of a real Ray cluster: the same version as one process, and a rank's node lost."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file
from trainer_models import Recorder, settings_of

from openclaw_rl.core.adapter import WEIGHTS
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import TrainerError
from openclaw_rl.testing.ray_nodes import RayNodes, descendants, is_alive, ray_nodes
from openclaw_rl.trainers.process import TrainerProcess
from openclaw_rl.trainers.settings import Method, MethodSettings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ONE, TWO = PolicyVersion("shared", 1), PolicyVersion("shared", 2)
SETTINGS = settings_of(MethodSettings(name=Method.COMBINE), nice=0, ranks=2)
CLOSE = 2e-6


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    """A head with one CPU and a node with one: each has room for one rank."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: make test-cluster")
    with ray_nodes(1, 1) as made:
        yield made


def difference(one: Path, other: Path) -> float:
    weights = load_file(other / WEIGHTS)
    return max(float((weight - weights[name]).abs().max()) for name, weight in load_file(one / WEIGHTS).items())


def ranks_on(nodes: RayNodes, number: int) -> list[int]:
    """The trainer's processes that run on a node; what keeps them is nobody's child."""
    marks = {f"RANK={number}".encode()}
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            held = path.read_bytes().split(b"\0")
            words = (path.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if marks & set(held) and b"openclaw_rl.trainers.worker" in words and b"cluster.ranks" not in words:
            found.append(int(path.parent.name))
    return found


async def test_ranks_on_nodes_write_what_one_process_writes_and_outlive_a_lost_node(
    nodes: RayNodes, trainer_model: Path, recorder: Recorder, tmp_path: Path
) -> None:
    launcher = shlex.join(
        [sys.executable, "-m", "openclaw_rl.cluster.ranks", "--address", nodes.address, "--ranks", "2"]
    )
    placed = TrainerProcess(trainer_model, replace(SETTINGS, launcher=launcher))
    alone = TrainerProcess(trainer_model, replace(SETTINGS, ranks=1))
    try:
        assert (await placed.step(recorder.batch(), resume=None)).took_step
        first = await placed.export(tmp_path / "1", ONE)
        await alone.step(recorder.batch(), resume=None)
        assert difference((await alone.export(tmp_path / "alone1", ONE)).folder, first.folder) < CLOSE

        (other,) = ranks_on(nodes, 1)
        step = asyncio.create_task(placed.step(recorder.long_batch(), resume=first.folder))
        await asyncio.sleep(0.2)
        nodes.kill(nodes.with_a_place())
        with pytest.raises(TrainerError, match="the trainer's process ended: exit code 1"):
            await step
        nodes.wait(nodes.add(1))
        await placed.step(recorder.batch(), resume=first.folder)
        again = await placed.export(tmp_path / "2", TWO)
        assert not is_alive(other)
        await alone.step(recorder.batch(), resume=first.folder)
        assert difference((await alone.export(tmp_path / "alone2", TWO)).folder, again.folder) < CLOSE

        left = [*ranks_on(nodes, 0), *ranks_on(nodes, 1)]
        assert len(left) == 2 and placed.pid is not None
        started = descendants(placed.pid)
        os.kill(placed.pid, signal.SIGKILL)  # the launcher: nothing of it is left
        async with asyncio.timeout(60):
            while any(map(is_alive, [*left, *started])):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
    finally:
        await placed.aclose()
        await alone.aclose()


async def test_a_cluster_without_room_is_said(nodes: RayNodes, trainer_model: Path, recorder: Recorder) -> None:
    launcher = shlex.join(
        [sys.executable, "-m", "openclaw_rl.cluster.ranks", "--address", nodes.address, "--ranks", "9"]
    )
    async with aclosing(TrainerProcess(trainer_model, replace(SETTINGS, ranks=9, launcher=launcher))) as trainer:
        with pytest.raises(TrainerError, match="exit code 1"):
            await trainer.step(recorder.batch(), resume=None)
