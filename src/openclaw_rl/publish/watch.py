"""Compares the served version with the one served before: a version that does worse is detected.

More corrections alone are not a fault of a version: a user may have a new wish. So if the evidence is strong, the
version before scores each corrected reply. A reply that it would have given as well counts as not corrected.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Engine
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.publish.settings import PublishSettings
from openclaw_rl.publish.swap import ServedVersions
from openclaw_rl.publish.versions import path_to
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import VersionRow
from openclaw_rl.store.tables.effects import CorrectionRecord

log = logging.getLogger(__name__)

LESS_LIKELY = math.log(2.0)  # in nats: the version before would have said it at most half as often
LINE = 400  # the newest versions that are examined: more than a window of judged turns can concern
MOST_TOLD = 4096  # answers about single replies that are remembered
STEPS = 400  # of the numerical integral
BETS = 24  # higher shares that are bet on, evenly spread
SURE = 0.95  # of the share before
LEAST = 8  # turns before; if the version before answered fewer, those of the versions before it count too


@dataclass(slots=True)
class Watch:
    """Looks for versions to roll back. It asks the engine only once about each reply."""

    store: Store
    engine: Engine
    served: ServedVersions
    settings: PublishSettings
    _told: dict[tuple[str, PolicyVersion], bool] = field(default_factory=dict)

    def let_go(self) -> None:
        """Removes all answers about replies from memory."""
        self._told.clear()

    async def guilty(
        self, rows: Sequence[VersionRow], current: PolicyVersion, outcomes: Sequence[CorrectionRecord]
    ) -> Suspect | None:
        """The version on the path to `current` that most likely made it worse, if this is certain enough.

        `rows` lead back from it, and `outcomes` are the recently judged turns. Raises EngineError or RequestError if
        the engine cannot be asked now, AdapterError if the version before is damaged.
        """
        window = self.settings.watch_turns
        if window == 0 or current.is_base:
            return None
        path = path_to(rows, current)
        pruned = {row.version for row in rows if row.pruned_s is not None}
        found = [one for one in suspects(path, outcomes, window=window) if one.parent not in pruned]
        sure = 1.0 / self.settings.margins.watch_chance
        charged: list[tuple[float, Suspect]] = []
        for suspect in found:
            before = [outcome.is_corrected for outcome in suspect.before]
            if worth(before, [outcome.is_corrected for outcome in suspect.since]) < sure:
                continue
            evidence = worth(before, await self._to_blame(rows, suspect))
            log.info("watched version=%s: %s; worth=%.3g", suspect.version, suspect.words, evidence)
            if evidence >= sure:
                charged.append((evidence, suspect))
        return max(charged, key=lambda pair: pair[0])[1] if charged else None

    async def _to_blame(self, rows: Sequence[VersionRow], suspect: Suspect) -> list[bool]:
        """For each turn since, whether it was corrected and the version before would rather have said otherwise."""
        row = next((row for row in rows if row.version == suspect.parent), None)
        if row is not None:
            async with self.served.at_hand(row):
                return [await self._is_to_blame(outcome, suspect.parent) for outcome in suspect.since]
        return [await self._is_to_blame(outcome, suspect.parent) for outcome in suspect.since]

    async def _is_to_blame(self, outcome: CorrectionRecord, before: PolicyVersion) -> bool:
        if not outcome.is_corrected:
            return False
        key = (outcome.turn, before)
        if key not in self._told:
            if len(self._told) >= MOST_TOLD:
                self._told.clear()
            self._told[key] = await self._would_not_say(outcome.turn, before)
        return self._told[key]

    async def _would_not_say(self, turn: str, before: PolicyVersion) -> bool:
        said = await self.store.turn(turn)
        if said is None or not said.completion.tokens:
            return False
        whole = Prompt(said.prompt.tokens + said.completion.tokens, images=said.prompt.images)
        scores = await self.engine.score(whole, start=len(said.prompt), version=before)
        return sum(said.completion.logp) - sum(scores.logp) >= LESS_LIKELY


async def watched(store: Store, window: int) -> set[PolicyVersion]:
    """The versions with which the watch may still compare, and to which it may roll back: their weights are needed."""
    found: set[PolicyVersion] = set()
    outcomes = await store.effects.outcomes() if window else []
    for scope in sorted({outcome.version.scope for outcome in outcomes}):
        head = await store.orders.head(scope)
        path = path_to(await store.line(head, most=LINE), head)
        given = Counter(outcome.version for outcome in outcomes)
        since = 0
        for version, parent in pairwise(path):
            since += given[version]
            if since > window:
                break
            found |= {version, parent}
    return found


@dataclass(frozen=True, slots=True)
class Suspect:
    """A version on the path to the served one, and the judged turns before and since it took over."""

    version: PolicyVersion
    parent: PolicyVersion
    before: tuple[CorrectionRecord, ...]
    since: tuple[CorrectionRecord, ...]

    @property
    def words(self) -> str:
        """The two shares."""
        return f"{_share(self.since)} judged turns corrected since, {_share(self.before)} before"


def suspects(path: Sequence[PolicyVersion], outcomes: Sequence[CorrectionRecord], *, window: int) -> list[Suspect]:
    """Every version of the path that is still watched, newest first, for a test that may be evaluated after every turn.

    The share of corrected turns before a version is known from a few turns only, so its upper confidence bound is used
    (`share_at_most`). A bet against that share pays off if turns are corrected more often now (`wealth`). If they are
    not, its expectation never grows, and the probability that it ever exceeds 1/alpha is at most alpha (Ville), however
    often it is evaluated. Source: the e-processes of arXiv 2210.01948.

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
        return 1.0  # no share is above 1
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
    """The upper bound of the true share with probability `sure`: that quantile of Beta(corrected + 1, rest + 1)."""
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
