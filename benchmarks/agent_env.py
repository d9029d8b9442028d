"""A task for the bundled model in which it can improve: solutions to word problems under the heading it uses least."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

from openclaw_rl.agents.entries import EnvOpener, TaskEntry
from openclaw_rl.envs.box.sandbox import Boxes, Sandbox
from openclaw_rl.envs.task import Action, Env, Observation, Part, PartKind, Score, StepResult, Task
from openclaw_rl.envs.tasks.source import Attempt, NoSolutionError, ReadTasks
from openclaw_rl.errors import TaskError
from openclaw_rl.tiny import world

PROBLEMS = 3  # in one episode, one after the other
HEADING = "### "


class HeadingEnv:
    """Asks problem after problem; a reply under a heading of the third level scores 1, any other -1.

    The outcome is 1 where most replies did. Each step takes `delay_s`, as a command or a page would.
    """

    def __init__(self, delay_s: float = 0.0) -> None:
        self._delay_s = delay_s
        self._random = Random(0)
        self._good: list[bool] = []

    async def reset(self, task: Task, *, seed: int = 0) -> Observation:
        """The first problem. A group's seed gives it its problems."""
        self._random = Random(f"{task.id} {seed}")
        self._good = []
        return self._next()

    async def step(self, actions: Sequence[Action]) -> StepResult:
        """The next problem."""
        await asyncio.sleep(self._delay_s)
        is_good = str(actions[0].arguments["text"]).startswith(HEADING)
        self._good.append(is_good)
        return StepResult(self._next(), reward=1.0 if is_good else -1.0, done=len(self._good) == PROBLEMS)

    async def evaluate(self) -> Score:
        """Whether most replies were under the heading."""
        return Score(float(sum(self._good) * 2 > PROBLEMS), details=f"{sum(self._good)} of {PROBLEMS}")

    async def aclose(self) -> None:
        """Holds nothing."""

    def _next(self) -> Observation:
        return Observation((Part(PartKind.TEXT, world.problem(self._random, held_out=False).question),))


class HeadingTasks(ReadTasks):
    """Tasks by number; their problems follow from it."""

    def __init__(self, count: int) -> None:
        names = [f"heading-{number}" for number in range(count)]
        super().__init__("heading", {name: Task(name, "Solve the problem.") for name in names})

    async def start(self, task: Task, boxes: Boxes) -> Sandbox | None:
        """No box."""
        return None

    async def solve(self, task: Task, attempt: Attempt) -> Attempt:
        """There is none."""
        raise NoSolutionError(f"{task.id} has no solution")

    async def judge(self, task: Task, attempt: Attempt) -> Score:
        """The environment judges."""
        raise TaskError("these tasks are judged by their environment")


def heading_entries(count: int) -> dict[str, TaskEntry]:
    """The tasks of a run."""
    source = HeadingTasks(count)
    return {name: TaskEntry(name, task, source) for name, task in source.tasks.items()}


def opener(delay_s: float) -> EnvOpener:
    """Opens an environment for an entry."""

    async def opened(entry: TaskEntry) -> Env:
        return HeadingEnv(delay_s)

    return opened
