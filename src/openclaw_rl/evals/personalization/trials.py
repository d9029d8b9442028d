"""The result of one trial of one method: sessions, and measurements at fixed points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from openclaw_rl.evals.records import converged_at

BEFORE, TOLD, CONVERGED, AGAIN, TWICE, LAST = "before", "told", "converged", "again", "twice", "last"


@dataclass(frozen=True, slots=True)
class TrialSettings:
    """How a trial is driven."""

    sessions: int = 20
    """Sessions of each user until a method that has not converged is given up."""
    most_sessions: int = 40
    """Sessions of each user at most; one that converged at c continues to 3c, or to this."""
    most_corrections: int = 3
    """How often a user corrects before giving a session up."""
    problems: int = 60
    """Unseen problems of each user in one measurement."""
    temperature: float = 0.7
    """The temperature of every reply, measured ones included."""
    max_tokens: int = 256
    """Of every reply."""
    at_once: int = 16
    """Concurrent requests of a measurement."""
    settle_s: float = 120.0
    """The longest wait between sessions for the server to learn what it can."""
    poll_s: float = 0.03
    """How often the server's status is read meanwhile."""


@dataclass(frozen=True, slots=True)
class TrialSession:
    """One conversation: the rating of the first reply, and the effort to get a good one."""

    person: str
    number: int
    follows: bool
    right: bool
    odd: tuple[str, ...]
    filed: bool | None  # whether the file was changed as asked; None if this was not reached, or there is no file
    corrections: int
    turns: int
    hints: tuple[str, ...]
    samples: int
    version: str
    reply: str
    seconds: float
    is_settled: bool

    @property
    def is_good(self) -> bool:
        """Whether the first reply counts: wish followed, right, no defects, and the file changed if it should."""
        return self.follows and self.right and not self.odd and self.filed is not False


@dataclass(frozen=True, slots=True)
class FaultyReply:
    """A reply with defects, and what they are."""

    why: tuple[str, ...]
    asked: str
    reply: str


@dataclass(frozen=True, slots=True)
class MeasuredShares:
    """First replies to one person's unseen problems at one moment; nothing is learned from these.

    `bare` counts those that followed the wish with nothing added to the prompt, if that was measured separately;
    `odd` are some of the degenerate ones, for reading.
    """

    person: str
    of: int
    wish: int
    right: int
    good: int
    degenerate: int
    mean_chars: float
    prompt_tokens: float
    version: str
    bare: int | None = None
    odd: tuple[FaultyReply, ...] = ()


@dataclass(frozen=True, slots=True)
class Point:
    """A measured moment. `person` is set if it is a person's convergence."""

    label: str
    after_session: int
    shares: tuple[MeasuredShares, ...]
    person: str = ""

    def of(self, person: str) -> MeasuredShares:
        """That person's shares."""
        return next(shares for shares in self.shares if shares.person == person)


@dataclass(frozen=True, slots=True)
class Trial:
    """One method with one seed: the people who taught, and everybody who was measured."""

    method: str
    seed: int
    people: tuple[str, ...]
    sessions: tuple[TrialSession, ...]
    points: tuple[Point, ...]
    steps: int
    versions: int
    versions_refused: int
    refused: int
    seconds: float
    hints_in_use: int = 0  # in prompts, if a server carries them
    hints_retired: int = 0

    def sessions_of(self, person: str) -> tuple[TrialSession, ...]:
        """That person's sessions, in order."""
        return tuple(session for session in self.sessions if session.person == person)

    def converged_at(self, person: str, *, gated: bool = True) -> int | None:
        """The session that completes three in a row; without gating only the wish counts."""
        return converged(self.sessions_of(person), gated=gated)

    def point(self, label: str, person: str = "") -> Point | None:
        """The point of that name, if it was measured."""
        return next((item for item in self.points if item.label == label and item.person in ("", person)), None)

    @property
    def end(self) -> Point:
        """The latest point."""
        return self.points[-1]


def converged(sessions: Sequence[TrialSession], *, gated: bool = True) -> int | None:
    """The number of the session that completes three in a row whose first reply counted."""
    return converged_at([session.is_good if gated else session.follows for session in sessions])
