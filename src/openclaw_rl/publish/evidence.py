"""Whether a version does worse than the one served before it: a test that may be evaluated after every turn.

The share of corrected turns before a version is known from a few turns only, so its upper confidence bound is used
(`share_at_most`). A bet against that share pays off if turns are corrected more often now (`wealth`). If they are not,
its expectation never grows, and the probability that it ever exceeds 1/alpha is at most alpha (Ville), however often it
is evaluated. Source: the e-processes of arXiv 2210.01948.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.store.tables.effects import CorrectionRecord

STEPS = 400  # of the numerical integral
BETS = 24  # higher shares that are bet on, evenly spread
SURE = 0.95  # of the share before
LEAST = 8  # turns before; if the version before answered fewer, those of the versions before it count too


@dataclass(frozen=True, slots=True)
class Suspect:
    """A version on the way to the one being served, and the judged turns before and since it took over."""

    version: PolicyVersion
    parent: PolicyVersion
    before: tuple[CorrectionRecord, ...]
    since: tuple[CorrectionRecord, ...]

    @property
    def words(self) -> str:
        """The two shares."""
        return f"{_share(self.since)} judged turns corrected since, {_share(self.before)} before"


def suspects(path: Sequence[PolicyVersion], outcomes: Sequence[CorrectionRecord], *, window: int) -> list[Suspect]:
    """Every version of the path that is still watched, newest first.

    `path` leads from the served version back to what it was made from. The turns of a version and of those made from it
    count, over the first `window` judged turns after it took over. They are compared with the turns of the version
    before, at most `window`, together with earlier ones if those are fewer than `LEAST`.
    """
    found = []
    for index, version in enumerate(path[:-1]):
        newer, older = set(path[: index + 1]), set(path[index + 1 :])
        since = [outcome for outcome in outcomes if outcome.version in newer]
        before = [outcome for outcome in outcomes if outcome.version in older]
        own = sum(outcome.version == path[index + 1] for outcome in before)
        if len(since) > window:
            break  # those before it were watched to the end too
        if since and before:
            found.append(
                Suspect(version, path[index + 1], tuple(before[-min(window, max(own, LEAST)) :]), tuple(since))
            )
    return found


def worth(before: Iterable[bool], since: Sequence[bool]) -> float:
    """The highest value of the bet after any of the turns since; True means a corrected one."""
    known = list(before)
    return wealth(since, share_at_most(sum(known), len(known)))


def wealth(corrected: Sequence[bool], share: float) -> float:
    """The most that a bet against `share` was worth; it is spread evenly over higher shares.

    mean over q > p of prod (q / p)^x ((1 - q) / (1 - p))^(1 - x),   x = 1 for a corrected turn
    """
    if share >= 1.0:
        return 1.0  # nothing is more than always
    others = [share + (1.0 - share) * (index + 0.5) / BETS for index in range(BETS)]
    bets, most = [1.0 / BETS] * BETS, 1.0
    for one in corrected:
        bets = [
            bet * (other / share if one else (1.0 - other) / (1.0 - share))
            for bet, other in zip(bets, others, strict=True)
        ]
        most = max(most, sum(bets))
    return most


def share_at_most(corrected: int, turns: int, *, sure: float = SURE) -> float:
    """What the true share exceeds with a chance of 1 - `sure` only: that quantile of Beta(corrected + 1, rest + 1)."""
    grid = [(index + 0.5) / STEPS for index in range(STEPS)]
    logs = [corrected * math.log(share) + (turns - corrected) * math.log(1.0 - share) for share in grid]
    top = max(logs)
    weights = [math.exp(value - top) for value in logs]
    left = sure * sum(weights)
    for share, weight in zip(grid, weights, strict=True):
        left -= weight
        if left <= 0.0:
            return share + 0.5 / STEPS
    return 1.0


def _share(outcomes: Sequence[CorrectionRecord]) -> str:
    return f"{sum(outcome.is_corrected for outcome in outcomes)} of {len(outcomes)}"
