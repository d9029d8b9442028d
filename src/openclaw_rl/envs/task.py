"""The data of environments: tasks, observations, results of steps, and scores of episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from openclaw_rl.core.message import Json, Tool
from openclaw_rl.errors import BoxError, TaskError


class Split(StrEnum):
    """The use of a task."""

    TRAIN = "train"
    TEST = "test"


class Failure(StrEnum):
    """Who is at fault for a failure."""

    AGENT = "agent"  # the agent's own mistake: it counts against the agent
    ENVIRONMENT = "environment"  # the task, its image or its grader is broken: the task is set aside
    INFRASTRUCTURE = "infrastructure"  # a box, a disk or a machine failed: retried or masked, never a reward of 0


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources of a task's box."""

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
    """One thing to do. `metadata` contains what else the source knows: family, difficulty, licence."""

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
    """The kind of content of a part of an observation."""

    TEXT = "text"
    IMAGE = "image"  # `data` contains a PNG
    TREE = "tree"  # an accessibility tree, as text
    RECORD = "record"  # `data` contains a PNG for people who look at the episode later; the agent does not see it


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an observation."""

    kind: PartKind
    text: str = ""
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Info:
    """What is known about a step besides the observation."""

    timings_s: Mapping[str, float] = field(default_factory=dict)
    failure: Failure | None = None
    reason: str = ""  # why it failed, as text
    facts: Mapping[str, Json] = field(default_factory=dict)

    @property
    def is_broken(self) -> bool:
        """Whether the episode failed through no fault of the agent, so that it has no verdict."""
        return self.failure in (Failure.ENVIRONMENT, Failure.INFRASTRUCTURE)


@dataclass(frozen=True, slots=True)
class Observation:
    """What the agent sees and the tools that it may call next."""

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
    """The result of a step. `reward` is None if the step has none of its own."""

    observation: Observation
    reward: float | None = None
    done: bool = False
    truncated: bool = False
    info: Info = field(default_factory=Info)


@dataclass(frozen=True, slots=True)
class Score:
    """The verdict on an episode. If there is none, `reward` is None and `failure` says who is at fault."""

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
    """Runs one episode of one task at a time."""

    async def reset(self, task: Task, *, seed: int = 0) -> Observation:
        """The first observation of a task."""

    async def step(self, actions: Sequence[Action]) -> StepResult:
        """The result of the agent's calls, which are done in order."""

    async def evaluate(self) -> Score:
        """The verdict on the present state. It is reached on a fork: the episode may continue afterwards."""

    async def aclose(self) -> None:
        """Releases the episode's resources."""


def failed(problem: TaskError | BoxError, timings_s: Mapping[str, float] | None = None) -> Info:
    """Who is at fault for an error from a source, a box or an environment."""
    failure = Failure.INFRASTRUCTURE if isinstance(problem, BoxError) else Failure.ENVIRONMENT
    return Info(timings_s or {}, failure, problem.problem)


def over(info: Info) -> StepResult:
    """The result of a step if the episode is over or was never begun."""
    return StepResult(Observation((), info=info), done=True, info=info)


def unscored(info: Info) -> Score:
    """The verdict on an episode that failed through no fault of the agent."""
    return Score(None, details=info.reason, failure=info.failure)
