"""Stages that break are begun again, and say so for a while."""

from __future__ import annotations

import asyncio

import pytest

from openclaw_rl.errors import DiskError
from openclaw_rl.runtime.learning import LASTED_S, StageSupervisor


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds


class Stage:
    """Breaks so many times, each time after so long, then ends."""

    def __init__(self, clock: Clock, breaks: int, after_s: float = 0.0) -> None:
        self.clock, self.left, self.after_s = clock, breaks, after_s

    async def run(self) -> None:
        self.clock.now_s += self.after_s
        if self.left:
            self.left -= 1
            raise KeyError("spilt")


async def test_a_stage_that_breaks_is_begun_again_after_longer_and_longer_pauses() -> None:
    clock = Clock()
    upkeep = StageSupervisor(clock, clock.sleep)
    await upkeep.keep("train", Stage(clock, 11).run)
    assert clock.pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert upkeep.broken == {"train": "it broke 11 times, last by KeyError: 'spilt'"}


async def test_a_break_is_forgotten_once_the_stage_has_run_for_long() -> None:
    clock = Clock()
    upkeep = StageSupervisor(clock, clock.sleep)
    await upkeep.keep("train", Stage(clock, 3, after_s=LASTED_S).run)
    assert clock.pauses == [1, 1, 1] and upkeep.broken == {}


async def test_what_broke_a_task_of_a_stage_is_named_itself() -> None:
    async def worker() -> None:
        raise ValueError("no such turn")

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(worker())

    upkeep = StageSupervisor()
    keeping = asyncio.create_task(upkeep.keep("judge", run))
    await asyncio.sleep(0.01)
    assert upkeep.broken == {"judge": "it broke once, last by ValueError: no such turn"}
    keeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await keeping


async def test_what_was_foreseen_is_logged_in_its_own_words_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, left = Clock(), [DiskError("the store cannot be written: the disk is full", fix="free some space")]

    async def run() -> None:
        if left:
            raise left.pop()

    upkeep = StageSupervisor(clock, clock.sleep)
    await upkeep.keep("judge", run)
    said = "the store cannot be written: the disk is full. Free some space"
    assert upkeep.broken == {"judge": f"it broke once, last by {said}"}
    (record,) = caplog.records
    assert said in record.getMessage() and record.exc_info is None
