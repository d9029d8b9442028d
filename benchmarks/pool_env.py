"""What the pool's storm runs: a task with a shell whose commands are counted in the box and outside of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import aclosing

from openclaw_rl.envs.box.sandbox import Boxes, BoxLimits, BoxSpec, Sandbox
from openclaw_rl.envs.open import EnvOptions, open_env
from openclaw_rl.envs.task import Action, Env, Observation, Score, StepResult, Task, TaskTimeouts
from openclaw_rl.envs.tasks.source import Attempt, ReadTasks, TaskSource, box_of, in_a_box

STEPS = 3
SPEC = BoxSpec(limits=BoxLimits(memory_mb=64, processes=32, disk_mb=8))
LEDGER = "OPENCLAW_RL_BENCH_LEDGER"  # the file that every action is written to before it is done


class CountedTasks(ReadTasks):
    """Tasks that are solved by writing STEPS different lines to a file, each once."""

    def __init__(self) -> None:
        limits = TaskTimeouts(build_s=30.0, agent_s=60.0, judge_s=30.0)
        names = [f"lines-{number}" for number in range(20)]
        super().__init__("lines", {name: Task(name, "Write the lines.", limits=limits) for name in names})

    async def start(self, task: Task, boxes: Boxes) -> Sandbox:
        """A box with an empty file."""
        box = await boxes.create(SPEC)
        await box.write("log", b"")
        return box

    async def solve(self, task: Task, attempt: Attempt) -> Attempt:
        """Writes three lines."""
        in_a_box(await box_of(task, attempt).exec("printf '1\\n2\\n3\\n' >> log", timeout_s=20.0))
        return attempt

    async def judge(self, task: Task, attempt: Attempt) -> Score:
        """1 where STEPS lines stand there, each once."""
        async with aclosing(await box_of(task, attempt).fork()) as fork:
            lines = (await fork.read("log")).decode().split()
        return Score(float(len(lines) == STEPS == len(set(lines))), details=" ".join(lines))


class CountedEnv:
    """Meets Env: another one, with every action written down outside before it is done."""

    def __init__(self, inner: Env) -> None:
        self._inner = inner
        self._ledger = os.open(os.environ[LEDGER], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    async def reset(self, task: Task, *, seed: int = 0) -> Observation:
        """As the other one."""
        return await self._inner.reset(task, seed=seed)

    async def step(self, actions: Sequence[Action]) -> StepResult:
        """As the other one."""
        for action in actions:
            os.write(self._ledger, f"{action.arguments.get('command', '')}\n".encode())
        return await self._inner.step(actions)

    async def evaluate(self) -> Score:
        """As the other one."""
        return await self._inner.evaluate()

    async def aclose(self) -> None:
        """As the other one."""
        try:
            await self._inner.aclose()
        finally:
            if self._ledger >= 0:
                os.close(self._ledger)
                self._ledger = -1


def sources() -> list[TaskSource]:
    """The tasks, for --tasks."""
    return [CountedTasks()]


def open_kind(source: TaskSource, boxes: Boxes | None, options: EnvOptions) -> Env:
    """The kind, for --kind."""
    return CountedEnv(open_env("terminal", source, boxes, options=options))
