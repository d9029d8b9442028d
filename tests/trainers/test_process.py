from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from trainer_models import Recorder, settings_of

from openclaw_rl.core import pipe
from openclaw_rl.core.adapter import StepProgress
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import StepTooCostlyError, TrainerError
from openclaw_rl.trainers.frames import OpenCommand, Opened, StepCommand
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.process import TrainerProcess
from openclaw_rl.trainers.settings import Method, MethodSettings
from openclaw_rl.trainers.worker import _Answers, _reporter

ONE = PolicyVersion("shared", 1)
TWO = PolicyVersion("shared", 2)
SETTINGS = settings_of(MethodSettings(name=Method.COMBINE), nice=0)


def ticks(pid: int) -> int:
    """CPU time a process has used, in the kernel's ticks."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def busy(pid: int) -> None:
    """Returns once a process has computed for a while."""
    before = ticks(pid)
    while ticks(pid) < before + 10:  # noqa: ASYNC110  (another process's work has no event)
        await asyncio.sleep(0)


async def test_the_process_does_what_the_trainer_does(trainer_model: Path, recorder: Recorder, tmp_path: Path) -> None:
    async with contextlib.aclosing(await TrainerProcess.start(trainer_model, SETTINGS)) as trainer:
        report = await trainer.step(recorder.batch(), resume=None)
        adapter = await trainer.export(tmp_path / "1", ONE)
        await trainer.step(recorder.batch(), resume=adapter.folder)
        second = await trainer.export(tmp_path / "2", TWO)
        # a refused version: training goes on from the one before
        await trainer.step(recorder.batch(), resume=adapter.folder)
        again = await trainer.export(tmp_path / "3", TWO)
        from_base = await trainer.step(recorder.batch(), resume=None)
    own = LoraTrainer.open(trainer_model, SETTINGS)
    here = own.step(recorder.batch())
    assert report.took_step
    assert report.metrics["loss"] == here.metrics["loss"] == from_base.metrics["loss"]
    assert own.export(tmp_path / "own", ONE).digest == adapter.digest
    assert again.digest == second.digest != adapter.digest


async def test_a_process_killed_in_mid_step_is_replaced_and_nothing_is_lost(
    trainer_model: Path, recorder: Recorder, tmp_path: Path
) -> None:
    trainer = TrainerProcess(trainer_model, SETTINGS)
    assert trainer.pid is None  # it starts when it is needed
    try:
        await trainer.prepare()
        ahead = trainer.pid
        assert ahead is not None
        await trainer.prepare()
        await trainer.step(recorder.batch(), resume=None)
        first = await trainer.export(tmp_path / "1", ONE)
        pid = trainer.pid
        assert pid == ahead
        step = asyncio.create_task(trainer.step(recorder.long_batch(), resume=first.folder))
        await busy(pid)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(TrainerError, match="killed"):
            await step
        with pytest.raises(TrainerError, match="gone"):
            await trainer.export(tmp_path / "never", TWO)
        await trainer.step(recorder.batch(), resume=first.folder)
        assert trainer.pid != pid
        second = await trainer.export(tmp_path / "2", TWO)
    finally:
        await trainer.aclose()
    own = LoraTrainer.open(trainer_model, SETTINGS)
    own.restore(first.folder)
    own.step(recorder.batch())
    assert own.export(tmp_path / "own", TWO).digest == second.digest


async def test_a_cancelled_wait_ends_the_process_so_that_no_answer_meets_the_wrong_call(
    trainer_model: Path, recorder: Recorder
) -> None:
    trainer = await TrainerProcess.start(trainer_model, SETTINGS)
    pid = trainer.pid
    assert pid is not None
    step = asyncio.create_task(trainer.step(recorder.long_batch(), resume=None))
    await busy(pid)
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    assert trainer.pid is None
    assert not is_alive(pid)
    report = await trainer.step(recorder.batch(), resume=None)
    assert report.metrics["samples"] == 3.0
    await trainer.aclose()


async def test_closing_ends_a_step_in_progress(trainer_model: Path, recorder: Recorder) -> None:
    trainer = await TrainerProcess.start(trainer_model, SETTINGS)
    pid = trainer.pid
    assert pid is not None
    step = asyncio.create_task(trainer.step(recorder.long_batch(), resume=None))
    await busy(pid)
    await trainer.aclose()
    with pytest.raises(TrainerError):
        await step
    assert not is_alive(pid)


async def test_a_step_that_takes_too_long_is_ended(trainer_model: Path, recorder: Recorder) -> None:
    trainer = await TrainerProcess.start(trainer_model, SETTINGS)
    assert trainer.pid is not None
    os.kill(trainer.pid, signal.SIGSTOP)
    hurried = TrainerProcess(trainer_model, replace(SETTINGS, timeout_s=0.05))
    with pytest.raises(TrainerError, match=r"within 0.05 s") as told:
        await hurried.step(recorder.batch(), resume=None)
    assert not isinstance(told.value, StepTooCostlyError)  # it was the model that took so long to be read
    assert hurried.pid is None
    await trainer.aclose()  # a stopped process cannot leave by itself, and is gone all the same
    assert trainer.pid is None


async def test_a_step_that_takes_too_long_says_that_it_was_the_step(trainer_model: Path, recorder: Recorder) -> None:
    trainer = await TrainerProcess.start(trainer_model, SETTINGS)
    trainer._settings = replace(SETTINGS, timeout_s=0.05)
    with pytest.raises(StepTooCostlyError, match=r"within 0.05 s") as told:
        await trainer.step(recorder.long_batch() * 20, resume=None)
    assert told.value.after_s == 0.05
    assert trainer.pid is None


async def test_how_far_a_step_has_come_is_heard_while_it_is_under_way(trainer_model: Path, recorder: Recorder) -> None:
    method = MethodSettings(name=Method.TOPK)
    trainer = await TrainerProcess.start(trainer_model, settings_of(method, nice=0, updates=400, enough=0.0, lr=1e-6))
    hinted = recorder.batch()[0]
    assert trainer.progress is None
    step = asyncio.create_task(trainer.step([hinted] * 3, resume=None))
    seen: list[StepProgress] = []
    while not step.done():
        if (now := trainer.progress) is not None and (now.tokens or now.updates):
            seen.append(now)
        await asyncio.sleep(0.01)
    assert (await step).took_step
    assert trainer.progress is None  # nothing is under way any more
    assert seen[0].tokens > 0 and seen[-1].updates > 0
    assert all(one.most == 400 for one in seen)
    assert seen[-1].distance is not None and 0.0 < seen[-1].distance <= 1.0
    await trainer.aclose()


def test_nobody_who_listens_holds_up_no_step(trainer_model: Path, recorder: Recorder) -> None:
    """Reports are left out where the pipe is full, and the answer still comes whole."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    with os.fdopen(writing, "wb") as answers, os.fdopen(reading, "rb"):
        _reporter(_Answers(answers))(StepProgress(1, 1.0))  # returns


async def test_what_the_process_cannot_do_is_said_in_words(
    trainer_model: Path, recorder: Recorder, tmp_path: Path
) -> None:
    with pytest.raises(TrainerError, match="no causal language model"):
        await TrainerProcess.start(tmp_path, SETTINGS)
    trainer = TrainerProcess(trainer_model, SETTINGS)
    with pytest.raises(TrainerError, match="no adapter that training can continue from"):
        await trainer.step(recorder.batch(), resume=tmp_path / "nowhere")
    assert (await trainer.step(recorder.batch(), resume=None)).took_step
    await trainer.aclose()


def test_the_process_leaves_in_mid_step_when_its_owner_is_gone(trainer_model: Path, recorder: Recorder) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "openclaw_rl.trainers.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdin is not None and child.stdout is not None
    pipe.write(child.stdin, OpenCommand(trainer_model, replace(SETTINGS, nice=19), None))
    assert isinstance(pipe.read(child.stdout), Opened)
    assert os.getpriority(os.PRIO_PROCESS, child.pid) == 19
    pipe.write(child.stdin, StepCommand(tuple(recorder.long_batch() * 20), None))
    asyncio.run(busy(child.pid))
    child.stdin.close()
    assert child.wait(timeout=30) == 0
    assert child.stdout.read() == b""
    child.stdout.close()


def test_knowing_the_process_loads_no_torch() -> None:
    script = "import sys, openclaw_rl.trainers.process; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"


async def test_a_step_given_up_between_two_updates_leaves_nothing_behind(
    trainer_model: Path, recorder: Recorder
) -> None:
    method = MethodSettings(name=Method.TOPK, w_rl=1.0)
    trainer = await TrainerProcess.start(trainer_model, settings_of(method, lr=1e30, updates=3, enough=0.0))
    hinted, praised, _ = recorder.batch()
    try:
        given_up = await trainer.step([hinted], resume=None)  # every update throws the weights out of all bounds
        assert not given_up.took_step and "came nearer" in given_up.why
        assert (await trainer.step([praised], resume=None)).took_step  # one update, from weights that are whole
    finally:
        await trainer.aclose()
