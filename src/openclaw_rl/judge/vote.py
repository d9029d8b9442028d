"""What a judge's reply votes, and what votes add up to: one parser for all judges."""

from __future__ import annotations

import re
from collections.abc import Sequence

_BOXED = re.compile(r"\\boxed\s*\{\s*([+\-−]?)\s*([0-9]+)\s*\}")


def vote_of(reply: str) -> int | None:
    r"""The last `\boxed{}` integer, or None where there is none or it is not -1, 0 or 1."""
    found = _BOXED.findall(reply)
    if not found:
        return None
    sign, digits = found[-1]
    size = {"0": 0, "1": 1}.get(digits)
    if size is None:
        return None
    return -size if sign in ("-", "−") else size


def majority(votes: Sequence[int | None]) -> int | None:
    """The score most valid votes agree on; 0 for a tie, None where nobody voted, which is not 0."""
    counts = {score: votes.count(score) for score in (-1, 0, 1)}
    most = max(counts.values())
    if most == 0:
        return None
    winners = [score for score, count in counts.items() if count == most]
    return winners[0] if len(winners) == 1 else 0


def mean_of(votes: Sequence[int | None]) -> float | None:
    """The mean of the valid votes, None where nobody voted."""
    valid = [vote for vote in votes if vote is not None]
    return sum(valid) / len(valid) if valid else None
