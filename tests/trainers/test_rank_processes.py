"""The trainer's process with other ranks as its children, or under torchrun: killed, out of a file, started again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from trainer_models import Recorder, settings_of

from openclaw_rl.core.adapter import WEIGHTS
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import StepTooCostlyError, TrainerError
from openclaw_rl.trainers.process import TrainerProcess
from openclaw_rl.trainers.settings import Method, MethodSettings, TrainerSettings

pytestmark = pytest.mark.slow
ONE = PolicyVersion("shared", 1)
TWO = PolicyVersion("shared", 2)
SETTINGS = settings_of(MethodSettings(name=Method.COMBINE), nice=0, ranks=2)
CLOSE = 2e-6


def children(pid: int) -> list[int]:
    """The processes that a process started."""
    return [int(found) for found in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def gone(pid: int) -> None:
    """Returns once a process has ended."""
    while Path(f"/proc/{pid}").exists() and "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text():  # noqa: ASYNC110, ASYNC240
        await asyncio.sleep(0.01)


async def version(model: Path, settings: TrainerSettings, samples: list[Sample], into: Path) -> dict[str, torch.Tensor]:
    trainer = TrainerProcess(model, settings)
    try:
        report = await trainer.step(samples, resume=None)
        assert report.took_step
        return load_file((await trainer.export(into, ONE)).folder / WEIGHTS)
    finally:
        await trainer.aclose()


async def test_two_processes_and_torchrun_write_what_one_process_writes(
    trainer_model: Path, recorder: Recorder, tmp_path: Path
) -> None:
    torchrun = f"{sys.executable} -m torch.distributed.run --standalone --nproc-per-node 2"
    kinds = {"one": replace(SETTINGS, ranks=1), "two": SETTINGS, "run": replace(SETTINGS, launcher=torchrun)}
    found = {
        name: await version(trainer_model, settings, recorder.batch(), tmp_path / name)
        for name, settings in kinds.items()
    }
    for name in ("two", "run"):
        assert max(float((found[name][key] - one).abs().max()) for key, one in found["one"].items()) < CLOSE


async def test_a_rank_killed_in_mid_step_fails_the_step_and_another_is_started(
    trainer_model: Path, recorder: Recorder, tmp_path: Path
) -> None:
    async with aclosing(TrainerProcess(trainer_model, SETTINGS)) as trainer:
        await trainer.step(recorder.batch(), resume=None)
        adapter = await trainer.export(tmp_path / "1", ONE)
        assert trainer.pid is not None
        first, other = trainer.pid, children(trainer.pid)[0]
        step = asyncio.create_task(trainer.step(recorder.long_batch(), resume=adapter.folder))
        await asyncio.sleep(0.2)
        os.kill(other, signal.SIGKILL)
        with pytest.raises(StepTooCostlyError, match="rank 1 of the trainer ended: it was killed"):
            await step
        assert trainer.pid is None
        await trainer.step(recorder.batch(), resume=adapter.folder)
        again = await trainer.export(tmp_path / "2", TWO)
        assert trainer.pid not in (None, first)
        second = trainer.pid
        assert second is not None
        other = children(second)[0]
        os.kill(second, signal.SIGKILL)  # and the first one: the others end with it
        async with asyncio.timeout(30):
            await gone(other)
        with pytest.raises(TrainerError, match="process is gone"):
            await trainer.export(tmp_path / "3", TWO)
    own = replace(SETTINGS, ranks=1)
    async with aclosing(TrainerProcess(trainer_model, own)) as alone:
        await alone.step(recorder.batch(), resume=adapter.folder)
        expected = await alone.export(tmp_path / "own", TWO)
    differences = [
        float((one - load_file(again.folder / WEIGHTS)[name]).abs().max())
        for name, one in load_file(expected.folder / WEIGHTS).items()
    ]
    assert max(differences) < CLOSE


async def test_what_is_wrong_is_said_once_and_clearly(trainer_model: Path, recorder: Recorder, tmp_path: Path) -> None:
    async with aclosing(TrainerProcess(trainer_model, SETTINGS)) as trainer:
        with pytest.raises(TrainerError, match="has no adapter"):
            await trainer.step(recorder.batch(), resume=tmp_path / "nowhere")
        assert (await trainer.step(recorder.batch(), resume=None)).took_step
    launcher = f"{sys.executable} -m torch.distributed.run --standalone --nproc-per-node 1"
    async with aclosing(TrainerProcess(trainer_model, replace(SETTINGS, launcher=launcher))) as other:
        with pytest.raises(TrainerError, match=r"trainer\.ranks is 2, and trainer\.launcher started 1"):
            await other.step(recorder.batch(), resume=None)
