"""An attempt at a task: its turns, and how an environment graded it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from openclaw_rl.core.ledger import DropReason

LEAST_SPREAD = 1e-6  # up to this population standard deviation, rewards count as equal


class FailureClass(StrEnum):
    """Who is at fault for a failed episode."""

    NONE = "none"  # it was graded, whatever its outcome
    AGENT = "agent"  # the policy gave up, ran out of turns, or wrote something unreadable
    ENVIRONMENT = "environment"  # the task or its grader is broken
    INFRASTRUCTURE = "infrastructure"  # a machine, a network or a process failed

    @property
    def is_graded(self) -> bool:
        """Whether the outcome is about the policy, and so becomes a reward."""
        return self in (FailureClass.NONE, FailureClass.AGENT)


MASKED: dict[FailureClass, DropReason] = {
    FailureClass.ENVIRONMENT: DropReason.ENVIRONMENT_FAILED,
    FailureClass.INFRASTRUCTURE: DropReason.INFRASTRUCTURE_FAILED,
}


class EpisodeState(StrEnum):
    """The state of an episode."""

    OPEN = "open"
    ENDED = "ended"  # it has its outcome, and waits for the other episodes of its group
    SETTLED = "settled"  # each of its turns is a sample or was dropped


@dataclass(frozen=True, slots=True)
class EpisodeStep:
    """The episode and step of a turn. `observation` is the kind of observation that the turn answered.

    Steps count from 0. The kind is a word such as text, terminal, tool or screen.
    """

    episode: str
    index: int
    observation: str = "text"

    def __post_init__(self) -> None:
        if self.index < 0:
            raise ValueError(f"step {self.index} of episode {self.episode}: steps count from 0")


@dataclass(frozen=True, slots=True)
class Episode:
    """One attempt at one task.

    Episodes of one user, task and group are compared with each other; without a group an episode is not compared. A
    group has `group_size` episodes, None if the number is unknown. `closes_group` says that no other will begin. The
    `outcome` is None while the episode is open and if it was not graded.
    """

    id: str
    user: str
    task: str
    begun_s: float
    group: str | None = None
    group_size: int | None = None
    seed: int | None = None
    environment: str = ""
    state: EpisodeState = EpisodeState.OPEN
    ended_s: float | None = None
    outcome: float | None = None
    failure: FailureClass = FailureClass.NONE
    why: str = ""
    closes_group: bool = False

    def __post_init__(self) -> None:
        if not self.id or not self.task:
            raise ValueError("an episode has an id and a task")
        if self.group_size is not None and self.group_size < 1:
            raise ValueError(f"group_size is {self.group_size}: a group holds at least one episode")
        if self.outcome is not None and not math.isfinite(self.outcome):
            raise ValueError(f"outcome is {self.outcome}: it is a finite number")

    @property
    def is_open(self) -> bool:
        """Whether it may still take steps."""
        return self.state is EpisodeState.OPEN

    @property
    def reward(self) -> float | None:
        """The outcome if it is about the policy; None if it is masked or the episode is open."""
        return self.outcome if self.failure.is_graded and not self.is_open else None


@dataclass(frozen=True, slots=True)
class EpisodeEnd:
    """How an episode ended, as its client reports.

    Raises ValueError if neither an outcome nor a failure is reported. A failure of the agent's without an outcome
    counts as 0.
    """

    outcome: float | None
    failure: FailureClass = FailureClass.NONE
    why: str = ""
    closes_group: bool = False

    def __post_init__(self) -> None:
        if self.outcome is None and self.failure is FailureClass.NONE:
            raise ValueError("an episode without a failure has an outcome")
        if self.outcome is not None and not math.isfinite(self.outcome):
            raise ValueError(f"outcome is {self.outcome}: it is a finite number")

    @property
    def graded(self) -> float | None:
        """The outcome to store."""
        return 0.0 if self.outcome is None and self.failure is FailureClass.AGENT else self.outcome

    @property
    def words(self) -> str:
        """The text used as the last turn's next state, if the environment showed nothing after it."""
        said = "none" if self.graded is None else f"{self.graded:g}"
        failed = "" if self.failure is FailureClass.NONE else f", failure {self.failure.value}"
        return f"(the episode ended: outcome {said}{failed}{f'; {self.why}' if self.why else ''})"


def has_spread(rewards: Sequence[float]) -> bool:
    """Whether the rewards differ by more than rounding errors: population standard deviation above `LEAST_SPREAD`."""
    mean = math.fsum(rewards) / len(rewards)
    return math.sqrt(math.fsum((reward - mean) ** 2 for reward in rewards) / len(rewards)) > LEAST_SPREAD


def overlong_penalty(length: int, *, longest: int, cache: int) -> float:
    """0 up to `longest - cache` tokens, linear to -1 at `longest`, -1 beyond. Source: arXiv 2503.14476."""
    if length <= longest - cache:
        return 0.0
    return max(-1.0, (longest - cache - length) / cache)
