"""Tries a served version further, on the requests that it answers: the gate knows only what was asked before.

A version may have lost a kind of problem that nobody had asked about when it was tried. Nobody has to notice that, or
say so: each reply is compared with what the base model would say, with the wishes in its prompt or without them, as at
the gate. What follows a complaint in a conversation is not looked at (`tried_turns.after_complaints`).
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import AdapterError, BeyondContextError, ContextError, DamageError, EngineError, RequestError
from openclaw_rl.publish.gate import Gate
from openclaw_rl.publish.settings import PublishSettings
from openclaw_rl.publish.swap import ServedVersions
from openclaw_rl.publish.trial_prompts import VersionLessons
from openclaw_rl.publish.tried_turns import after_complaints
from openclaw_rl.publish.versions import path_to
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import VersionRow
from openclaw_rl.store.tables.effects import AnsweredRequest

log = logging.getLogger(__name__)
RECENT = 100  # answered requests that are searched
LEAST = 2.5  # conversations with departing replies that are evidence: one or two may have odd requests
TELLING = 0.5  # a reply that departs with this probability shows the damage
MOST_TELLING = 6  # of these requests earlier versions are tried on
CLEAN = 0.25  # an earlier version departs on them at most this share as often
MOST_FAILED = 3  # after so many times a request is left out
BACK = 3  # versions that may be rolled back together
DEPARTS, DEPARTS_OF = "in_use_departs", "in_use_departs_of"


@dataclass(frozen=True, slots=True)
class DamagedVersion:
    """A version on the path to the `served` one, and what shows that its replies are damaged; `turns` show it best."""

    version: PolicyVersion
    served: PolicyVersion
    shares: tuple[float, ...]
    turns: tuple[str, ...]

    @property
    def words(self) -> str:
        """Why it is rolled back."""
        return (
            f"in about {sum(self.shares):.0f} of {len(self.shares)} conversations it gave a reply that the base model "
            f"would not give, with the wish in its prompt or without it, for example {', '.join(self.turns[:3])}"
        )

    @property
    def metrics(self) -> dict[str, float]:
        """The share of conversations with a reply that departs, and of how many."""
        return _metrics(self.shares)


@dataclass(frozen=True, slots=True)
class TriedReply:
    """How likely a version departs on one request of a conversation; `prompt` are its ids."""

    session: str
    prompt: tuple[int, ...]
    share: float


@dataclass(slots=True)
class ServedTrial:
    """What is known of one served version: what it was tried on, by turn."""

    rows: Sequence[VersionRow]  # it and its ancestors, newest first
    path: Sequence[PolicyVersion]  # down to the scope's first
    lessons: VersionLessons
    tried: dict[str, TriedReply] = field(default_factory=dict)
    failed: Counter[str] = field(default_factory=Counter)  # how often a request could not be tried
    is_over: bool = False

    @property
    def shares(self) -> list[float]:
        """The highest of each conversation: its replies resemble each other."""
        found: dict[str, float] = {}
        for one in self.tried.values():
            found[one.session] = max(one.share, found.get(one.session, 0.0))
        return list(found.values())


@dataclass(slots=True)
class TrialInUse:
    """Tries one request after the other while nothing waits at the gate, at most `trial_turns` for each version."""

    store: Store
    served: ServedVersions
    gate: Gate
    settings: PublishSettings
    _trials: dict[PolicyVersion, ServedTrial] = field(default_factory=dict)
    _seen: str = ""  # the newest turn when nothing was left to try

    def let_go(self) -> None:
        """Removes all turns from memory."""
        self._trials.clear()
        self._seen = ""

    async def once(self) -> tuple[bool, DamagedVersion | None]:
        """Whether there was a request to try, and a version that is to be rolled back, if that made it certain enough.

        Raises EngineError or RequestError if the engine cannot try it now.
        """
        if not self.settings.gate or self.settings.trial_turns == 0:
            return False, None
        answered = await self.store.effects.answered(limit=RECENT)
        if not answered or answered[0].turn == self._seen:
            return False, None
        found = await self._next(answered)
        if found is None:
            self._seen = answered[0].turn
            return False, None
        trial, turn = found
        try:
            share = await self._departs(trial, turn, trial.path[0])
        except (EngineError, RequestError) as problem:
            trial.failed[turn.id] += MOST_FAILED if isinstance(problem, BeyondContextError | ContextError) else 1
            raise
        trial.tried[turn.id] = TriedReply(turn.session, turn.prompt.tokens, share)
        if self._is_damaged(trial.shares):
            damaged = await self._blamed(trial)
            if damaged is not None:
                return True, damaged
        elif len(trial.tried) < self.settings.trial_turns:
            return True, None
        await self._finish(trial)
        return True, None

    async def _next(self, answered: Sequence[AnsweredRequest]) -> tuple[ServedTrial, Turn] | None:
        """The newest request that a version in service answered and was not tried on."""
        later = after_complaints(answered)
        by_version: dict[PolicyVersion, list[str]] = {}
        for one in answered:
            if one.turn not in later:
                by_version.setdefault(one.version, []).append(one.turn)
        pins = await self.store.orders.pins()
        for version, turns in by_version.items():
            if version.is_base or version.scope in pins or self.served.current(version.scope) != version:
                continue
            trial = await self._trial(version)
            if trial is None or trial.is_over:
                continue
            for name in turns:
                if name in trial.tried or trial.failed[name] >= MOST_FAILED:
                    continue
                if (turn := await self._usable(trial, name)) is not None:
                    return trial, turn
                trial.failed[name] = MOST_FAILED
        return None

    async def _usable(self, trial: ServedTrial, name: str) -> Turn | None:
        """The turn with its client's prompt; None if the prompt is long or damaged, or the version was tried on it."""
        try:
            row = await self.store.row(name)
        except DamageError as problem:
            log.warning("cannot try what is served on turn=%s: %s", name, problem.problem)
            return None
        usable = [] if row is None else self.gate.turns.usable([row])
        known = {one.prompt for one in trial.tried.values()}
        return next((turn for turn in usable if turn.prompt.tokens not in known), None)

    async def _trial(self, version: PolicyVersion) -> ServedTrial | None:
        if version not in self._trials:
            rows = await self.store.line(version, most=BACK + 1)
            own = next((row for row in rows if row.version == version), None)
            if own is None or DEPARTS_OF in own.metrics:
                return None
            samples = [sample for row in rows for sample in await self.store.effects.samples(row.turns)]
            hints = list(dict.fromkeys(hint.text for one in samples if not one.is_promoted for hint in one.hints))
            held = [await self.store.turn(turn) for row in reversed(rows) for turn in row.turns]
            users = [turn.user for turn in held if turn is not None]
            lessons = VersionLessons(hints, users, most_alone=len(hints))
            current = {one: trial for one, trial in self._trials.items() if self.served.current(one.scope) == one}
            self._trials = {**current, version: ServedTrial(rows, path_to(rows, version), lessons)}
        return self._trials[version]

    async def _finish(self, trial: ServedTrial) -> None:
        """Notes in the store what was found, so that a restart does not begin anew."""
        trial.is_over = True
        version, shares = trial.path[0], trial.shares
        row = await self.store.version(version)
        if row is not None:
            await self.store.settle(version, row.status, row.why, _metrics(shares))
        log.info("tried in use version=%s conversations=%d departs=%.3f", version, len(shares), _mean(shares))

    async def _blamed(self, trial: ServedTrial) -> DamagedVersion | None:
        """The oldest version that departs on the same requests, if one of the next before it does not.

        If all of them do, the versions that came last are not the reason: somebody's earlier wish may be.
        """
        worst = sorted(trial.tried, key=lambda turn: -trial.tried[turn].share)
        telling = [turn for turn in worst if trial.tried[turn].share >= TELLING][:MOST_TELLING] or worst[:MOST_TELLING]
        turns = self.gate.turns.usable([row for turn in telling if (row := await self.store.row(turn)) is not None])
        if not turns:
            return None
        most = CLEAN * _mean([trial.tried[turn.id].share for turn in turns])
        for version, before in itertools.pairwise(trial.path[: BACK + 1]):
            try:
                async with self._loaded(trial.rows, before):
                    share = _mean([await self._departs(trial, turn, before) for turn in turns])
            except AdapterError as problem:  # nothing can be rolled back to it
                log.warning("cannot compare version=%s with what was served before: %s", trial.path[0], problem)
                return None
            log.warning("version=%s departs in use; before=%s share=%.3f", trial.path[0], before, share)
            if share <= most:
                names = tuple(turn.id for turn in turns)
                await self.store.telling.add(names)
                return DamagedVersion(version, trial.path[0], tuple(trial.shares), names)
        return None

    async def _departs(self, trial: ServedTrial, turn: Turn, version: PolicyVersion) -> float:
        return await self.gate.departs(turn, version, trial.lessons)

    @asynccontextmanager
    async def _loaded(self, rows: Sequence[VersionRow], version: PolicyVersion) -> AsyncIterator[None]:
        row = next((row for row in rows if row.version == version), None)
        if row is None:  # the base model
            yield
            return
        async with self.served.at_hand(row):
            yield

    def _is_damaged(self, shares: Sequence[float]) -> bool:
        return sum(shares) > max(LEAST, self.settings.margins.departs_others_max * len(shares))


def _mean(shares: Sequence[float]) -> float:
    return sum(shares) / len(shares)


def _metrics(shares: Sequence[float]) -> dict[str, float]:
    return {DEPARTS: _mean(shares), DEPARTS_OF: float(len(shares))}
