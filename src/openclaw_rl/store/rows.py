"""What the store returns besides plain nouns: rows with their state."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from openclaw_rl.core.adapter import Adapter
from openclaw_rl.core.episode import Episode
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.next_state import Feedback, NextState
from openclaw_rl.core.turn import Session, Turn
from openclaw_rl.core.verdict import Verdict
from openclaw_rl.core.version import SHARED, PolicyVersion

GIVEN_BACK = "given_back"  # a metric of a refused version: how many turns no longer count as learned from


class VersionStatus(StrEnum):
    """The status of a version."""

    CANDIDATE = "candidate"  # made by a step, not yet through the gate
    LIVE = "live"  # passed; may be served
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class VersionRow:
    """A version, the folder of its adapter, and what made it. The base model has no folder and no parent."""

    version: PolicyVersion
    parent: PolicyVersion | None
    folder: Path | None
    digest: str
    status: VersionStatus
    why: str
    made_s: float
    turns: tuple[str, ...] = ()  # consumed by its step
    metrics: dict[str, float] = field(default_factory=dict)
    rehearsed: tuple[str, ...] = ()  # consumed by earlier steps, and rehearsed so that what they taught stays
    upon: PolicyVersion | None = None  # the shared version on which a user's or an agent's version is based
    pruned_s: float | None = None  # when its weights were removed to save room; they can be made again

    @property
    def read(self) -> tuple[str, ...]:
        """All turns that its step learned from, in that order."""
        return (*self.turns, *self.rehearsed)

    @property
    def has_given_back(self) -> bool:
        """Whether it was refused, and other versions may learn from its turns."""
        return self.metrics.get(GIVEN_BACK, 0.0) > 0

    def adapter(self) -> Adapter | None:
        """The adapter to load for it; None for the base model."""
        return None if self.folder is None else Adapter(self.folder, self.digest, self.version)


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step that is about to be committed, with the version it made.

    `trained` are the turns it consumed for its scope, `dropped` those it could not use. `version` is None if no step
    was taken.
    """

    id: str
    started_s: float
    ended_s: float
    trained: tuple[str, ...]
    dropped: tuple[tuple[str, DropReason], ...]
    metrics: dict[str, float]
    version: VersionRow | None
    scope: str = SHARED

    def __post_init__(self) -> None:
        if self.version is not None and self.version.version.scope != self.scope:
            raise ValueError(f"a step in scope {self.scope} cannot make version {self.version.version}")


@dataclass(frozen=True, slots=True)
class TurnRow:
    """A turn with all its rows: what `/v1/rl/turns/{id}` shows."""

    turn: Turn
    state: State | None  # None for side turns, which have no state
    reason: DropReason | None
    next_state: NextState | None = None
    verdict: Verdict | None = None
    feedback: Feedback | None = None
    has_sample: bool = False
    step: str | None = None
    trained_version: PolicyVersion | None = None
    episode: Episode | None = None  # of which it is a step; `turn.step` says which
    step_score: float | None = None


@dataclass(frozen=True, slots=True)
class JudgedTurn:
    """A judged turn that is not yet a sample, and the session it belongs to. Turns are judged in the order of `seq`."""

    turn: Turn
    verdict: Verdict
    session: Session
    seq: int = 0
