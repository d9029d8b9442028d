"""The store's facts about learning: the ledger's counts, and statistics of the newest rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CorrectionTrend:
    """How often one user's turns were judged -1: among the older half of the newest verdicts, and the newer half."""

    user: str
    judged: int  # in each half
    earlier: int
    later: int


@dataclass(frozen=True, slots=True)
class Overview:
    """All counts but `paired` are of the newest rows; that is every turn with a next state.

    `unnamed` counts main turns in sessions that no client named. `scores` are the verdicts that judges voted, by score
    (None if nobody voted), `zeros` those among all verdicts. `refused_in_a_row` counts the newest versions that the
    gate refused: what was forgotten, or damaged, or overtaken by a rollback says nothing about training. `told` counts
    how recent requests that were not simply their owner's were classified: as which errand by which rule, and by whom.
    """

    paired: int = 0
    main: int = 0
    side: int = 0
    sessions: int = 0
    unnamed: int = 0
    waiting: int = 0  # main turns that wait for a next state
    side_why: str = ""  # the most frequent reason
    told: Mapping[str, int] = field(default_factory=dict)
    scores: Mapping[int | None, int] = field(default_factory=dict)
    zeros: int = 0
    refused_in_a_row: int = 0
    refused_why: str = ""
    versions: int = 0  # made by steps, ever
    newest_s: float | None = None
    frozen_since_s: float | None = None  # by the owner's order
    pinned: tuple[str, ...] = ()
    has_forgotten: bool = False  # something was erased on request
    contentment: tuple[CorrectionTrend, ...] = ()


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """The ledger's `counts`, and statistics of the newest rows.

    It counts turns by state, `main`, `side`, `dropped.REASON`, and of the paired those that are `awaiting_outcome`.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    seen: Overview = field(default_factory=Overview)

    @property
    def unjudged(self) -> int:
        """Turns that wait for a judge; steps of episodes wait for the environment's verdict."""
        return self.count("paired") - self.count("awaiting_outcome")

    def count(self, name: str) -> int:
        """A count of the ledger; 0 if there is none."""
        return self.counts.get(name, 0)
