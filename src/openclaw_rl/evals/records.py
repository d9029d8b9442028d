"""The results of a run: sessions, measurements with intervals, and the server's record of each turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from openclaw_rl.evals.client import ClientReply, TurnNews
from openclaw_rl.evals.people.users import Check
from openclaw_rl.evals.share import Share

IN_A_ROW = 3  # sessions whose first reply met the user's rule, in a row


@dataclass(frozen=True, slots=True)
class Example:
    """A first reply to an unseen problem."""

    question: str
    reply: str
    check: Check


@dataclass(frozen=True, slots=True)
class Measurement:
    """First replies to unseen problems at one moment. Nothing is learned from these."""

    label: str
    after_session: int
    version: str
    wish: Share
    right: Share
    degenerate: int  # cut by length, empty, or of an implausible length
    mean_chars: float
    examples: tuple[Example, ...]


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One reply in a session: the request, the reply, the user's next message, and the server's record."""

    asked: str
    reply: ClientReply
    check: Check
    said: str | None
    news: TurnNews | None = None


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """One conversation."""

    number: int
    turns: tuple[TurnRecord, ...]
    seconds: float
    is_settled: bool  # whether the server learned from it before the next session

    @property
    def is_good(self) -> bool:
        """Whether the first reply met the user's rule."""
        return self.turns[0].check.is_met

    @property
    def corrections(self) -> int:
        """How often the user corrected."""
        return sum(1 for turn in self.turns if turn.said is not None and not turn.check.is_met)


@dataclass(frozen=True, slots=True)
class LearningReport:
    """A whole run. `versions` counts live versions without the base model."""

    user: str
    wish: str
    seed: int
    temperature: float
    sessions: tuple[SessionRecord, ...]
    measurements: tuple[Measurement, ...]
    refused: int
    versions: int
    seconds: float

    @property
    def converged_at(self) -> int | None:
        """See `converged_at`."""
        return converged_at([session.is_good for session in self.sessions])

    @property
    def corrections(self) -> int:
        """Over all sessions."""
        return sum(session.corrections for session in self.sessions)

    def measured(self, label: str) -> Measurement | None:
        """The measurement of that name, if it was made."""
        return next((item for item in self.measurements if item.label == label), None)

    @property
    def last(self) -> Measurement | None:
        """The latest measurement, except the one before all sessions."""
        return self.measurements[-1] if len(self.measurements) > 1 else None


def converged_at(first_replies: Sequence[bool]) -> int | None:
    """The number of the session that completes three in a row whose first reply met the rule; None if none does."""
    row = 0
    for number, is_good in enumerate(first_replies, 1):
        row = row + 1 if is_good else 0
        if row == IN_A_ROW:
            return number
    return None


def number_of(version: str) -> int:
    """A version's number; 0 if the name has none."""
    number = version.rpartition(".")[2]
    return int(number) if number.isdecimal() else 0
