"""Checks tasks: the start state must fail, and the task's own solution must pass."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from openclaw_rl.envs.box.sandbox import Boxes
from openclaw_rl.envs.task import Failure, Task
from openclaw_rl.envs.tasks.harbor import FolderTasks
from openclaw_rl.envs.tasks.source import Attempt, NoSolutionError, OpenSource, TaskSource, UnsupportedTaskError
from openclaw_rl.errors import BoxError, TaskError


class TaskVerdict(StrEnum):
    """The result of a task's check."""

    SOUND = "sound"
    START_PASSES = "start passes"  # doing nothing is rewarded
    SOLUTION_FAILS = "solution fails"
    NO_SOLUTION = "no solution"  # its start fails; whether it can be solved is unknown
    GRADER_FAILS = "grader fails"  # it crashes, hangs, or gives no verdict
    BROKEN = "broken"  # it cannot be read or built
    SKIPPED = "skipped"  # it needs what is not available here
    BOX_FAILED = "box failed"  # not the task's fault: check it again


GOOD = (TaskVerdict.SOUND, TaskVerdict.NO_SOLUTION, TaskVerdict.SKIPPED)


@dataclass(frozen=True, slots=True)
class Checked:
    """One task, checked."""

    source: str
    id: str
    verdict: TaskVerdict
    reason: str = ""
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True)
class TaskReport:
    """All of them."""

    checked: tuple[Checked, ...]

    @property
    def counts(self) -> dict[str, int]:
        """The number of tasks by verdict."""
        counted = Counter(one.verdict for one in self.checked)
        return {verdict.value: counted[verdict] for verdict in TaskVerdict if counted[verdict]}

    @property
    def is_good(self) -> bool:
        """Whether no task is bad and at least one is sound."""
        return all(one.verdict in GOOD for one in self.checked) and any(
            one.verdict is TaskVerdict.SOUND for one in self.checked
        )


async def check_sources(
    sources: Sequence[TaskSource], boxes: Boxes, *, at_once: int, tell: Callable[[Checked], None]
) -> TaskReport:
    """Checks every task of the sources, `at_once` of them at a time. `tell` gets each result as it comes."""
    waiting = asyncio.Semaphore(at_once)
    checked: list[Checked] = []

    def add(one: Checked) -> None:
        checked.append(one)
        tell(one)

    async def one(source: TaskSource, task: Task) -> None:
        async with waiting:
            add(await check_task(source, task, boxes))

    try:
        async with asyncio.TaskGroup() as group:
            for source in sources:
                for name, reason in source.broken.items():
                    add(Checked(source.name, name, TaskVerdict.BROKEN, reason))
                for task in source.tasks.values():
                    group.create_task(one(source, task))
    finally:
        for source in sources:
            if isinstance(source, OpenSource):
                await source.aclose()
    return TaskReport(tuple(sorted(checked, key=lambda found: (found.source, found.id))))


async def check_task(source: TaskSource, task: Task, boxes: Boxes) -> Checked:
    """The result for one task; its failures are not raised."""
    began = time.monotonic()
    try:
        verdict, reason = await _looked_at(source, task, boxes)
    except NoSolutionError as problem:
        verdict, reason = TaskVerdict.NO_SOLUTION, problem.problem
    except UnsupportedTaskError as problem:
        verdict, reason = TaskVerdict.SKIPPED, problem.problem
    except TaskError as problem:
        verdict, reason = TaskVerdict.BROKEN, problem.problem
    except BoxError as problem:
        verdict, reason = TaskVerdict.BOX_FAILED, problem.problem
    if verdict is TaskVerdict.SOUND and isinstance(source, FolderTasks):
        source.sound.add(task.id)
    return Checked(source.name, task.id, verdict, " ".join(reason.split()), time.monotonic() - began)


async def _looked_at(source: TaskSource, task: Task, boxes: Boxes) -> tuple[TaskVerdict, str]:
    attempt = Attempt(await source.start(task, boxes))
    try:
        score = await source.judge(task, attempt)
        if score.failure is Failure.ENVIRONMENT:
            return TaskVerdict.GRADER_FAILS, score.details
        if score.is_success:
            return TaskVerdict.START_PASSES, "the tests pass before anything was done"
        try:
            attempt = await source.solve(task, attempt)
        except TaskError as problem:
            if isinstance(problem, NoSolutionError):
                raise
            return TaskVerdict.SOLUTION_FAILS, problem.problem
        for remark in ("", "only at the second try: its tests depend on time or chance"):
            score = await source.judge(task, attempt)
            if score.is_success:
                return TaskVerdict.SOUND, remark
        if score.failure is Failure.ENVIRONMENT:
            return TaskVerdict.GRADER_FAILS, score.details
        return TaskVerdict.SOLUTION_FAILS, f"the reward is {score.reward}: {score.details}"
    finally:
        if attempt.box is not None:
            await attempt.box.aclose()
