"""What an environment works with: tasks, what an agent sees, what a step gives, and how an episode is scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from openclaw_rl.core.message import Json, Tool
from openclaw_rl.errors import BoxError, TaskError


class Split(StrEnum):
    """What a task may be used for."""

    TRAIN = "train"
    TEST = "test"


class Failure(StrEnum):
    """Who is at fault where something failed."""

    AGENT = "agent"  # the agent's own doing: it counts against the agent
    ENVIRONMENT = "environment"  # the task, its image or its grader is broken: the task is put aside
    INFRASTRUCTURE = "infrastructure"  # a box, a disk or a machine failed: retried or masked, never a reward of 0


@dataclass(frozen=True, slots=True)
class Resources:
    """What a task's box is given."""

    memory_mb: int = 512
    disk_mb: int = 256
    processes: int = 128
    cpus: float | None = None
    network: bool = False


@dataclass(frozen=True, slots=True)
class TaskTimeouts:
    """How long each part of a task may take, in seconds."""

    build_s: float = 300.0
    agent_s: float = 300.0
    judge_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to do. `metadata` holds what a source knows beside it: family, difficulty, licence."""

    id: str
    instruction: str
    resources: Resources = field(default_factory=Resources)
    limits: TaskTimeouts = field(default_factory=TaskTimeouts)
    metadata: Mapping[str, Json] = field(default_factory=dict)
    split: Split = Split.TRAIN

    def __post_init__(self) -> None:
        if not self.id or not self.instruction.strip():
            raise ValueError(f"task {self.id!r} has no id or no instruction")


class PartKind(StrEnum):
    """What a part of an observation holds."""

    TEXT = "text"
    IMAGE = "image"  # `data` holds a PNG
    TREE = "tree"  # an accessibility tree, as text
    RECORD = "record"  # `data` holds a PNG for whoever looks at the episode later; the agent is not shown it


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of what the agent sees."""

    kind: PartKind
    text: str = ""
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Info:
    """What is known about a step beside what the agent sees."""

    timings_s: Mapping[str, float] = field(default_factory=dict)
    failure: Failure | None = None
    reason: str = ""  # why it failed, in words
    facts: Mapping[str, Json] = field(default_factory=dict)

    @property
    def is_broken(self) -> bool:
        """Whether the episode failed through no doing of the agent's, so that it has no verdict."""
        return self.failure in (Failure.ENVIRONMENT, Failure.INFRASTRUCTURE)


@dataclass(frozen=True, slots=True)
class Observation:
    """What the agent sees, and the tools it may call next."""

    parts: tuple[Part, ...]
    tools: tuple[Tool, ...] = ()
    info: Info = field(default_factory=Info)

    @property
    def text(self) -> str:
        """All of its text."""
        return "\n".join(part.text for part in self.parts if part.kind in (PartKind.TEXT, PartKind.TREE))


@dataclass(frozen=True, slots=True)
class Action:
    """A call of a tool as the agent made it."""

    tool: str
    arguments: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step gave. `reward` is None where the step has none of its own."""

    observation: Observation
    reward: float | None = None
    done: bool = False
    truncated: bool = False
    info: Info = field(default_factory=Info)


@dataclass(frozen=True, slots=True)
class Score:
    """The verdict on an episode. Where there is none, `reward` is None and `failure` says whose fault that is."""

    reward: float | None
    components: Mapping[str, float] = field(default_factory=dict)
    details: str = ""
    failure: Failure | None = None
    duration_s: float = 0.0

    def __post_init__(self) -> None:
        if self.reward is None and self.failure is None:
            raise ValueError("a score without a reward must say who is at fault")

    @property
    def is_success(self) -> bool:
        """Whether the task is solved."""
        return self.reward is not None and self.reward >= 1.0


class Env(Protocol):
    """One episode of one task at a time."""

    async def reset(self, task: Task, *, seed: int = 0) -> Observation:
        """The first thing the agent sees of a task."""
        ...

    async def step(self, actions: Sequence[Action]) -> StepResult:
        """What follows from the agent's calls, done one after the other."""
        ...

    async def evaluate(self) -> Score:
        """The verdict on the state as it is. Judged on a fork: the episode may go on afterwards."""
        ...

    async def aclose(self) -> None:
        """Gives back what the episode holds."""
        ...


def failed(problem: TaskError | BoxError, timings_s: Mapping[str, float] | None = None) -> Info:
    """Whose fault an error is that came out of a source, a box or an environment."""
    failure = Failure.INFRASTRUCTURE if isinstance(problem, BoxError) else Failure.ENVIRONMENT
    return Info(timings_s or {}, failure, problem.problem)


def over(info: Info) -> StepResult:
    """What a step gives where the episode is over, or was never begun."""
    return StepResult(Observation((), info=info), done=True, info=info)


def unscored(info: Info) -> Score:
    """The verdict on an episode that failed through no doing of the agent's."""
    return Score(None, details=info.reason, failure=info.failure)
