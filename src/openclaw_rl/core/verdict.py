"""Votes of judges and their sum, the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from openclaw_rl.core.hint import Hint


class VerdictSource(StrEnum):
    """What decided the score: the first of these that is present."""

    OWNER = "owner"  # overruled by hand; the judge's verdict is kept with it
    FEEDBACK = "feedback"
    ENVIRONMENT = "environment"  # a tool's error status, a test verdict
    VOTES = "votes"


@dataclass(frozen=True, slots=True)
class Vote:
    """One reply of a judge to one question.

    `score` is -1, 0 or 1, or None if the reply has no valid vote; `hint` is the text between the hint marks.
    """

    asked: str
    raw: str
    score: int | None
    hint: str | None = None
    judge: str = ""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.score not in (None, -1, 0, 1):
            raise ValueError(f"a vote is -1, 0 or 1, not {self.score}")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the votes on one turn add up to. A score of None means that there was no vote, which is not 0.

    `mean` is the mean of the valid score votes, used to find the best of a session's zeros.
    `hints` are the accepted ones, best first.
    """

    turn: str
    score: int | None
    source: VerdictSource
    votes: tuple[Vote, ...] = ()
    hints: tuple[Hint, ...] = ()
    mean: float | None = None

    def __post_init__(self) -> None:
        if self.score not in (None, -1, 0, 1):
            raise ValueError(f"a score is -1, 0 or 1, not {self.score}")

    @property
    def has_signal(self) -> bool:
        """Whether anything can be learned: a score that is not 0, or a hint."""
        return bool(self.score) or bool(self.hints)
