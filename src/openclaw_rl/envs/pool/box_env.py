"""The kind `box`: a task's box for a harness with its own loop, and the verdict on the box."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from openclaw_rl.envs.box.sandbox import Boxes, Sandbox
from openclaw_rl.envs.task import (
    Action,
    Env,
    Failure,
    Info,
    Observation,
    Part,
    PartKind,
    Score,
    StepResult,
    Task,
    failed,
    unscored,
)
from openclaw_rl.envs.tasks.source import Attempt, TaskSource
from openclaw_rl.errors import BoxError, TaskError


@runtime_checkable
class HasBox(Protocol):
    """An environment that gives access to its box."""

    @property
    def box(self) -> Sandbox:
        """The box of the episode. BoxError if there is none."""


@runtime_checkable
class CanFork(Protocol):
    """An environment whose state can be duplicated."""

    async def fork(self) -> Env:
        """Another environment in the same state; the two are independent."""


class BoxEnv:
    """Implements Env, HasBox and CanFork. Without tools: its client calls the box, and may give an answer at the
    end."""

    def __init__(self, source: TaskSource, boxes: Boxes) -> None:
        self._source = source
        self._boxes = boxes
        self._task: Task | None = None
        self._box: Sandbox | None = None
        self.answer = ""  # for tasks that are judged by an answer in words

    async def reset(self, task: Task, *, seed: int = 0) -> Observation:
        """The instruction, after the box is made."""
        await self.aclose()
        began = time.monotonic()
        try:
            self._box = await self._source.start(task, self._boxes)
        except (TaskError, BoxError) as problem:
            return Observation((), info=failed(problem))
        self._task = task
        return Observation((Part(PartKind.TEXT, task.instruction),), info=Info({"start": time.monotonic() - began}))

    async def step(self, actions: Sequence[Action]) -> StepResult:
        """Refuses every action: this kind has no tools."""
        info = Info(failure=Failure.AGENT, reason="this kind of environment has no tools: call its box")
        return StepResult(Observation((), info=info), info=info)

    async def evaluate(self) -> Score:
        """The verdict of the task's tests."""
        if self._task is None:
            return Score(None, details="no task was begun", failure=Failure.INFRASTRUCTURE)
        try:
            return await self._source.judge(self._task, Attempt(self._box, self.answer))
        except (TaskError, BoxError) as problem:
            return unscored(failed(problem))

    @property
    def box(self) -> Sandbox:
        """The box of the episode."""
        if self._box is None:
            raise BoxError("there is no box: the task needs none, or no episode is open", fix="call reset first")
        return self._box

    async def fork(self) -> BoxEnv:
        """The same task over a fork of the box."""
        other = BoxEnv(self._source, self._boxes)
        other._task, other._box = self._task, await self.box.fork()
        return other

    async def aclose(self) -> None:
        """Removes the box."""
        if self._box is not None:
            box, self._box = self._box, None
            await box.aclose()
        self._task, self.answer = None, ""
