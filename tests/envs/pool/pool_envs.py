"""Small environments and tasks for the workers of a test's pool: they count, and wait, raise or hang when asked to."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Mapping, Sequence

from openclaw_rl.core.message import Tool
from openclaw_rl.envs.box.sandbox import Boxes, Sandbox
from openclaw_rl.envs.open import EnvOptions
from openclaw_rl.envs.task import Action, Info, Observation, Part, PartKind, Score, StepResult, Task, TaskTimeouts
from openclaw_rl.envs.tasks.source import Attempt, TaskSource
from openclaw_rl.errors import BoxError, TaskError
from openclaw_rl.testing.png import a_png

NO_NUMBER = 999  # the seed with which the reward is not a number
TOOL = Tool("act", "Do it.", {"type": "object", "properties": {"note": {"type": "string"}}})


class CountTasks:
    """Tasks without boxes."""

    name = "counts"
    broken: Mapping[str, str] = {"torn": "its instruction is missing"}

    def __init__(self) -> None:
        limits = TaskTimeouts(build_s=20.0, agent_s=20.0, judge_s=10.0)
        self.tasks = {f"t{n}": Task(f"t{n}", "Count.", limits=limits) for n in range(4)}

    async def start(self, task: Task, boxes: Boxes) -> Sandbox | None:
        return None

    async def solve(self, task: Task, attempt: Attempt) -> Attempt:
        return attempt

    async def judge(self, task: Task, attempt: Attempt) -> Score:
        return Score(1.0)


class CountEnv:
    """Adds up; writes every action to the file POOL_LEDGER, so that each time it is done can be counted outside."""

    def __init__(self) -> None:
        self._total = 0
        self._seed = 0

    async def reset(self, task: Task, *, seed: int = 0) -> Observation:
        self._total, self._seed = 0, seed
        return Observation((Part(PartKind.TEXT, f"{task.id} {seed}"), Part(PartKind.IMAGE, data=b"\x89\0")), (TOOL,))

    async def step(self, actions: Sequence[Action]) -> StepResult:
        for action in actions:
            note = str(action.arguments.get("note", ""))
            _write_down(note)
            match action.tool:
                case "wait":
                    await asyncio.sleep(float(note))
                case "block":
                    _block(float(note))
                case "raise":
                    raise ZeroDivisionError("a bug of the environment's")
                case "box":
                    raise BoxError("the disk is full")
                case "task":
                    raise TaskError("the grader is broken")
                case "die":
                    os._exit(7)
            self._total += 1
        text = Part(PartKind.TEXT, str(self._total))
        return StepResult(Observation((text,)), reward=0.5, info=Info(facts={"deep": [{"seed": self._seed}]}))

    async def evaluate(self) -> Score:
        reward = math.nan if self._seed == NO_NUMBER else float(self._total)
        return Score(reward, {"total": float(self._total)})

    async def fork(self) -> CountEnv:
        other = CountEnv()
        other._total = self._total
        return other

    async def aclose(self) -> None:
        self._total = 0


def _write_down(note: str) -> None:
    with open(os.environ["POOL_LEDGER"], "a", encoding="utf-8") as ledger:
        ledger.write(f"{note}\n")


def _block(seconds: float) -> None:
    time.sleep(seconds)


def sources() -> list[TaskSource]:
    return [CountTasks()]


class RecordedCountEnv(CountEnv):
    """Takes a picture for the record at the start."""

    async def reset(self, task: Task, *, seed: int = 0) -> Observation:
        first = await super().reset(task, seed=seed)
        return Observation((first.parts[0], Part(PartKind.RECORD, data=a_png(7))), first.tools)


def open_kind(source: TaskSource, boxes: Boxes | None, options: EnvOptions) -> CountEnv:
    return RecordedCountEnv() if options.records else CountEnv()
