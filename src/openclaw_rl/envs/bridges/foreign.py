"""Third-party environments as ours: the protocol that each implements, and one Env for all of them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from openclaw_rl.core.message import Json, Tool
from openclaw_rl.envs.box.sandbox import Boxes, Sandbox
from openclaw_rl.envs.task import (
    Action,
    Failure,
    Info,
    Observation,
    Part,
    PartKind,
    Score,
    StepResult,
    Task,
    failed,
    over,
    unscored,
)
from openclaw_rl.envs.tasks.source import Attempt, NoSolutionError, ReadTasks
from openclaw_rl.errors import BoxError, TaskError

MOST_CHARACTERS = 16_000


@dataclass(frozen=True, slots=True)
class ForeignStep:
    """What an environment shows after an action; `reward` is None if it gives none."""

    parts: tuple[Part, ...]
    reward: float | None = None
    done: bool = False
    truncated: bool = False


class WrongActionError(ValueError):
    """An action that the environment cannot take: the agent's fault. The episode continues."""


class Foreign(Protocol):
    """One episode of a third-party environment.

    WrongActionError is the agent's fault, TaskError the environment's, BoxError the machine's or the connection's.
    """

    async def begin(self, task: Task, seed: int) -> tuple[ForeignStep, tuple[Tool, ...]]:
        """The first observation, and the tools."""

    async def act(self, action: Action) -> ForeignStep:
        """The result of one action."""

    async def score(self) -> float | None:
        """The reward of the episode; None if it is the sum of the rewards of its steps."""

    async def aclose(self) -> None:
        """Releases its resources."""


class ForeignEnv:
    """Implements Env. Actions of a step are done in order; each gives one or more parts."""

    def __init__(self, make: Callable[[], Foreign], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._make = make
        self._clock = clock
        self._foreign: Foreign | None = None
        self._tools: tuple[Tool, ...] = ()
        self._total = 0.0
        self._ended: Info | None = Info(failure=Failure.INFRASTRUCTURE, reason="no task was begun: call reset first")

    async def reset(self, task: Task, *, seed: int = 0) -> Observation:
        """The instruction and the environment's first observation."""
        await self.aclose()
        began, self._total, self._ended = self._clock(), 0.0, None
        self._foreign = self._make()
        try:
            first, self._tools = await self._foreign.begin(task, seed)
        except (TaskError, BoxError) as problem:
            self._ended = failed(problem)
            return Observation((), info=self._ended)
        parts = (Part(PartKind.TEXT, task.instruction), *first.parts)
        return Observation(parts, self._tools, Info({"start": self._clock() - began}))

    async def step(self, actions: Sequence[Action]) -> StepResult:
        """The observation, and the sum of the rewards of these actions."""
        if self._ended is not None or self._foreign is None:
            return over(self._ended or Info())
        began, parts, rewards, wrong = self._clock(), list[Part](), list[float](), ""
        done = truncated = False
        for action in actions:
            if done or truncated:
                parts.append(Part(PartKind.TEXT, "[not done: the episode was over]"))
                continue
            try:
                step = await self._foreign.act(action)
            except WrongActionError as problem:
                wrong = str(problem)
                parts.append(Part(PartKind.TEXT, f"[not done: {wrong}]"))
                continue
            except (TaskError, BoxError) as problem:
                self._ended = failed(problem)
                return over(self._ended)
            parts += step.parts
            rewards += [] if step.reward is None else [step.reward]
            done, truncated = step.done, step.truncated
        self._total += sum(rewards)
        info = Info({"actions": self._clock() - began}, Failure.AGENT if wrong else None, wrong)
        if done or truncated:
            self._ended = info
        reward = sum(rewards) if rewards else None
        return StepResult(Observation(tuple(parts), self._tools, info), reward, done, truncated, info)

    async def evaluate(self) -> Score:
        """The environment's own score, or else the sum of the rewards so far."""
        ended = self._ended
        if ended is not None and ended.is_broken:
            return unscored(ended)
        assert self._foreign is not None
        began = self._clock()
        try:
            own = await self._foreign.score()
        except (TaskError, BoxError) as problem:
            return unscored(failed(problem))
        score = Score(self._total if own is None else own, details="sum of rewards" if own is None else "its own score")
        return replace(score, duration_s=self._clock() - began)

    async def aclose(self) -> None:
        """Releases the environment."""
        foreign, self._foreign = self._foreign, None
        self._ended = Info(failure=Failure.INFRASTRUCTURE, reason="the environment was closed")
        if foreign is not None:
            await foreign.aclose()


class ForeignTasks(ReadTasks):
    """The tasks of an environment that judges them itself."""

    def __init__(self, name: str, tasks: Iterable[Task], broken: Mapping[str, str] | None = None) -> None:
        super().__init__(name, {task.id: task for task in tasks}, broken)

    async def start(self, task: Task, boxes: Boxes) -> Sandbox | None:
        """None: the environment runs elsewhere."""
        return None

    async def solve(self, task: Task, attempt: Attempt) -> Attempt:
        """Always raises: such a task has no solution."""
        raise NoSolutionError(f"task {task.id} has no solution")

    async def judge(self, task: Task, attempt: Attempt) -> Score:
        """Always raises: the environment scores an episode while it is open."""
        raise TaskError(f"task {task.id} is scored by its own environment", fix="ask the environment to evaluate")


def shown_json(value: Json) -> Part:
    """Data as the agent sees it: text unchanged, anything else as JSON, cut if it is very long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) > MOST_CHARACTERS:
        half = MOST_CHARACTERS // 2
        text = f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"
    return Part(PartKind.TEXT, text)
