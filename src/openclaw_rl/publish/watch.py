"""Compares the served version with the one served before: a version that does worse is detected.

More corrections alone are not a fault of a version: a user may have a new wish. So if the evidence is strong, the
version before scores each corrected reply. A reply that it would have given as well counts as not corrected.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Engine
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.publish.evidence import Suspect, suspects, worth
from openclaw_rl.publish.settings import PublishSettings
from openclaw_rl.publish.swap import ServedVersions
from openclaw_rl.publish.versions import ancestors
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import VersionRow
from openclaw_rl.store.tables.effects import CorrectionRecord

log = logging.getLogger(__name__)
LESS_LIKELY = math.log(2.0)  # in nats: the version before would have said it half as often, or more rarely
LINE = 400  # the newest versions that are examined: more than a window of judged turns can concern
MOST_TOLD = 4096  # answers about single replies that are remembered


@dataclass(slots=True)
class Watch:
    """Looks for versions to be rolled back. It asks the engine only once about each reply."""

    store: Store
    engine: Engine
    served: ServedVersions
    settings: PublishSettings
    _told: dict[tuple[str, PolicyVersion], bool] = field(default_factory=dict)

    def let_go(self) -> None:
        """Remembers no answer about any reply."""
        self._told.clear()

    async def guilty(
        self, rows: Sequence[VersionRow], current: PolicyVersion, outcomes: Sequence[CorrectionRecord]
    ) -> Suspect | None:
        """The version on the way to `current` that most likely made it worse, if this is sure enough.

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


def path_to(rows: Sequence[VersionRow], current: PolicyVersion) -> list[PolicyVersion]:
    """The served version and what it was made from, newest first, down to the scope's first."""
    path = [current, *(row.version for row in ancestors(rows, current))]
    last = next((row.parent for row in rows if row.version == path[-1]), None)
    return path if last is None else [*path, last]
