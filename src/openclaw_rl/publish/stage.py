"""The publishing stage: candidates go through the gate, and those that pass into service."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from openclaw_rl.core.facts import StoreFacts
from openclaw_rl.core.stage import StageReport
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.errors import AdapterError, EngineError, RequestError
from openclaw_rl.publish.gate import Gate, GateReport
from openclaw_rl.publish.settings import PublishSettings
from openclaw_rl.publish.status import PublishStatus, publish_findings
from openclaw_rl.publish.swap import ServedVersions
from openclaw_rl.publish.trial_in_use import TrialInUse
from openclaw_rl.publish.versions import ancestors, path_to
from openclaw_rl.publish.watch import LINE, Watch
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import VersionRow, VersionStatus
from openclaw_rl.store.tables.effects import CorrectionRecord
from openclaw_rl.store.tables.lessons import Refusal, ReturnedSamples
from openclaw_rl.wording.likeness import asks_alike

log = logging.getLogger(__name__)
POLL_S = 2.0
# The detail of a version between passing the gate and being served: a crash in between is repaired at the next start.
ON_ITS_WAY = "passed the gate and is being swapped in"
LONGEST_PAUSE_S = 300.0
BUSY_S = 30.0  # so often a served version is tried on a request while it is not idle, or the engine is away


@dataclass(slots=True)
class PublishStage:
    """Tries one candidate at a time, and watches what is served. Training sets `candidate_made`; `version_settled` is
    set for training, and `prune_due` for pruning.
    """

    store: Store
    served: ServedVersions
    gate: Gate
    settings: PublishSettings
    watch: Watch | None = None
    trial: TrialInUse | None = None
    is_idle: Callable[[], bool] = lambda: True  # no request is being answered, and nothing is being learned
    clock: Callable[[], float] = time.monotonic
    candidate_made: asyncio.Event = field(default_factory=asyncio.Event)
    version_settled: asyncio.Event = field(default_factory=asyncio.Event)
    prune_due: asyncio.Event = field(default_factory=asyncio.Event)
    _status: PublishStatus = field(default_factory=PublishStatus)
    _noticed: str = ""  # the versions served when the notice was written
    _failures: int = 0
    _not_before_s: float = 0.0
    _tried_s: float = -math.inf  # when a served version was last tried on a request
    _has_failed: bool = False  # the engine could not try it then
    _seen: int = -1  # how far the verdicts were examined

    @property
    def status(self) -> PublishStatus:
        """The current status. A notice ends once another version is served, for whatever reason."""
        current = str(self.served.current(SHARED))
        notice = self._status.notice if current == self._noticed else ""
        return replace(self._status, current=current, owners=self.served.owners, notice=notice)

    @property
    def name(self) -> str:
        """Its name as a stage."""
        return "publish"

    def gauges(self) -> Mapping[str, float]:
        """Versions published, refused and rolled back."""
        held = self.status
        return {
            "versions_published": held.published,
            "versions_refused": held.refused,
            "versions_taken_back": held.taken_back,
            "versions_own": held.owners,
        }

    async def report(self, facts: StoreFacts) -> StageReport:
        """The state of publishing."""
        held = replace(self.status, pinned=", ".join(sorted(facts.seen.pinned)))
        return StageReport(self.name, held, held.at_gate == 0, held.notice, tuple(publish_findings(facts, held)))

    def let_go(self) -> None:
        """Removes all turns from memory, as after a restart; not while it runs."""
        if self.watch is not None:
            self.watch.let_go()
        if self.trial is not None:
            self.trial.let_go()
        self.gate.let_go()

    async def run(self) -> None:
        """Publishes until cancelled. `start` comes first, before anything is served."""
        while True:
            if not await self.once():
                await self._rest()

    async def start(self) -> None:
        """Serves the versions that were served when the program ended.

        If the shared one's folder is damaged, its nearest intact ancestor is served instead, and the status says so.
        """
        rows = await self.store.versions()
        on_their_way = [row for row in rows if row.why == ON_ITS_WAY]
        for scope in sorted({SHARED, *(row.version.scope for row in rows)}):
            version = await self.store.current(scope)
            if version.is_base or scope != SHARED:  # own versions are loaded when their owner asks
                await self.served.resume(version)
            else:
                await self._restore(rows, version)
            for row in on_their_way:
                if row.version.scope == scope and row.parent == version:
                    await self._finish(row)

    async def once(self) -> bool:
        """Settles the oldest candidate; False if there is none, or it is too early to try again."""
        await self._mend()
        await self._note_pins()
        if await self._look_back():
            return True
        rows = await self.store.candidates()
        self._status = replace(self._status, at_gate=len(rows))
        if not rows:
            return await self._try_in_use()
        if self.clock() < self._not_before_s:
            return False
        try:
            await self._settle(rows[0])
        except (EngineError, RequestError) as problem:  # the engine is unavailable or full: not the candidate's fault
            self._not_before_s = self.clock() + min(
                self.settings.retry_s * 2 ** min(self._failures, 30), LONGEST_PAUSE_S
            )
            self._failures += 1
            self._notice(f"version {rows[0].version} cannot be tried: {problem}")
            log.warning("cannot try version=%s: %s", rows[0].version, problem)
            return False
        self._failures, self._not_before_s = 0, 0.0
        self.version_settled.set()
        self.prune_due.set()
        return True

    async def _try_in_use(self) -> bool:
        """Tries a served version on one more request that it answered; True if there was one, and more may wait."""
        has_paused = self.clock() - self._tried_s >= BUSY_S
        if self.trial is None or not (has_paused or (self.is_idle() and not self._has_failed)):
            return False
        self._tried_s, self._has_failed = self.clock(), False
        try:
            is_tried, damaged = await self.trial.once()
        except (EngineError, RequestError) as problem:
            self._has_failed = True
            log.warning("cannot try what is served on the requests that it answered: %s", problem)
            return False
        if damaged is not None:
            rows = await self.store.line(damaged.served, most=LINE)
            turns = next((row.turns for row in rows if row.version == damaged.version), ())
            await self._leave_to_prompts(turns, damaged.version, is_certain=True)  # first: it must survive a crash
            await self._take_back(rows, damaged.served, damaged.version, damaged.words, damaged.metrics)
        return is_tried

    async def _leave_to_prompts(self, turns: Sequence[str], version: PolicyVersion, *, is_certain: bool) -> None:
        """What the weights could not learn from these turns is in prompts from now on."""
        for hint in await self.store.hints.leave_to_prompts(turns, is_certain=is_certain):
            log.warning("hint=%s of user=%s is left to prompts: version=%s", hint.id, hint.user, version)

    async def _look_back(self) -> bool:
        """Rolls back a version that does worse than the one served before it; True if one was rolled back."""
        if self.watch is None or (judged := await self.store.effects.last_judged()) == self._seen:
            return False
        outcomes, pins = await self.store.effects.outcomes(), await self.store.orders.pins()
        is_taken = False
        for scope in sorted({outcome.version.scope for outcome in outcomes} - {*pins}):
            is_taken = await self._look_at(self.watch, scope, outcomes) or is_taken
        self._seen = judged
        return is_taken

    async def _look_at(self, watch: Watch, scope: str, outcomes: Sequence[CorrectionRecord]) -> bool:
        current = await self.store.current(scope)
        rows = await self.store.line(current, most=LINE)
        try:
            guilty = await watch.guilty(rows, current, outcomes)
        except (EngineError, RequestError, AdapterError) as problem:  # it is checked again after the next verdict
            log.warning("cannot compare scope=%s with what was served before: %s", scope, problem)
            return False
        if guilty is None:
            return False
        share = sum(outcome.is_corrected for outcome in guilty.since) / len(guilty.since)
        metrics = {"watch_turns": float(len(guilty.since)), "watch_corrected": share}
        words = f"it did worse than {guilty.parent}: {guilty.words}"
        return await self._take_back(rows, current, guilty.version, words, metrics)

    async def take_back(self, user: str, version: PolicyVersion, wish: Sequence[str] = (), *, why: str = "") -> bool:
        """Serves `version` again if all versions made from it since learned only from this user, without effect.

        `why` is another reason for it, in words.

        If this was found for one `wish`, given by its hints, then only the newest ones are taken back, up to the last
        that learned another wish. Nothing happens if there is none, another version is pinned, other users taught
        meanwhile, the version before is damaged, or the engine is unavailable.
        """
        current = await self.store.current(version.scope)
        rows = await self.store.line(current, most=LINE)
        path = path_to(rows, current)
        if version not in path[1:] or await self.store.orders.pinned(version.scope) is not None:
            return False
        newer = path[: path.index(version)]
        for turn in [turn for row in rows if row.version in newer for turn in row.turns]:
            held = await self.store.turn(turn)
            if held is None or held.user != user:
                return False
        if wish:
            newer = await self._about(wish, [row for row in rows if row.version in newer])
        if not newer:
            return False
        since = path[path.index(newer[-1]) + 1]
        words = why or f"{user} corrected as often as before, so what was learned since {since} had no effect"
        return await self._take_back(rows, current, newer[-1], words, {})

    async def _about(self, wish: Sequence[str], newest_first: Sequence[VersionRow]) -> list[PolicyVersion]:
        """The newest of these versions, down to the first that learned this wish with no other one in between."""
        found = 0
        for number, row in enumerate(newest_first, 1):
            turns = [await self.store.row(turn) for turn in row.turns]
            hints = [hint.text for turn in turns if turn and turn.verdict for hint in turn.verdict.hints]
            if any(asks_alike(hint, asked) for hint in hints for asked in wish):
                found = number
            elif hints:
                break
        return [row.version for row in newest_first[:found]]

    async def _take_back(
        self,
        rows: Sequence[VersionRow],
        current: PolicyVersion,
        version: PolicyVersion,
        words: str,
        metrics: dict[str, float],
    ) -> bool:
        """Serves a version's parent if `current`, which contains the version, is still served; False if it cannot."""
        path = path_to(rows, current)
        parent = path[path.index(version) + 1]
        row = next((row for row in rows if row.version == parent), None)
        try:
            if row is not None:
                await self.served.load(row)
        except (EngineError, RequestError, AdapterError) as problem:
            log.warning("cannot go back to version=%s: %s", parent, problem)
            return False
        if await self.store.current(current.scope) != current:
            return False
        why = f"rolled back: {words}"
        await self.served.swap(parent, why=f"{version} was {why}")
        for later in path[: path.index(version)]:
            with_it = f"rolled back with {version}, which it was made from"
            await self.store.settle(later, VersionStatus.LIVE, with_it, {})
        await self.store.settle(version, VersionStatus.LIVE, why, metrics)
        notice = f"version {version} was {why}; {parent} is served again"
        self._status = replace(self._status, taken_back=self._status.taken_back + 1, last=notice)
        self._notice(notice)
        log.warning("%s", notice)
        return True

    async def _note_pins(self) -> None:
        pins = await self.store.orders.pins()
        self._status = replace(self._status, pinned=", ".join(sorted(map(str, pins.values()))))

    @property
    def looked_at(self) -> int:
        """How far the verdicts were examined, as `EffectBook.last_judged` counts."""
        return self._seen

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(POLL_S):
                await self.candidate_made.wait()
        except TimeoutError:
            return
        self.candidate_made.clear()

    async def _settle(self, row: VersionRow) -> None:
        scope = row.version.scope
        current = await self.store.orders.head(scope)
        if row.parent != current:
            why = f"it was made from {row.parent}, and {current} is served now"
            await self._refuse(row, GateReport(False, why), is_own_fault=False)
            return
        try:
            await self.served.load(row)
        except AdapterError as problem:
            await self._refuse(row, GateReport(False, str(problem)))
            return
        parent = await self.served.own(current.scope) or self.served.current()
        report = await self.gate.check(row, parent=parent)
        if not report.passed:
            await self._refuse(row, report)
        elif await self.store.orders.head(scope) != current:  # rolled back while it was tried
            return
        elif (pinned := await self.store.orders.pinned(scope)) is not None:
            await self._keep_back(row, report, pinned)
        else:
            await self.store.settle(row.version, VersionStatus.LIVE, ON_ITS_WAY, dict(report.metrics))
            await self._serve(row, report.why)

    async def _serve(self, row: VersionRow, why: str) -> None:
        await self.served.swap(row.version, why=why)
        await self.store.settle(row.version, VersionStatus.LIVE, why, {})
        self._status = replace(
            self._status, published=self._status.published + 1, last=f"{row.version}: {why}", notice=""
        )

    async def _keep_back(self, row: VersionRow, report: GateReport, pinned: PolicyVersion) -> None:
        """It passed, and training continues from it; by the owner's order another version is served."""
        await self.served.forget(row.version)
        why = f"{report.why}; not served, since {pinned} is pinned"
        await self.store.orders.pass_behind_pin(row, why=why, metrics=report.metrics)
        self._status = replace(self._status, last=f"{row.version}: {why}")
        log.info("kept back version=%s: %s", row.version, why)

    async def _refuse(self, row: VersionRow, report: GateReport, *, is_own_fault: bool = True) -> None:
        """Refused; its samples wait to be learned again with a smaller learning rate, at most `give_back` times.

        A refusal that is not the version's own fault does not count.
        """
        await self.served.forget(row.version)
        refusal = Refusal(report.why, dict(report.metrics), self.settings.give_back, is_counted=is_own_fault)
        returned = await self.store.refusals.refuse(row.version, refusal)
        await self._leave_to_prompts(returned.given_up, row.version, is_certain=False)
        last = f"{row.version} was refused: {report.why}"
        self._status = replace(self._status, refused=self._status.refused + 1, last=last)
        if is_own_fault:
            self._notice(f"version {last}{_became(returned)}")
        log.warning(
            "refused version=%s waiting_again=%d given_up=%d: %s",
            row.version, len(returned.waiting), len(returned.given_up), report.why,
        )  # fmt: skip

    async def _restore(self, rows: Sequence[VersionRow], version: PolicyVersion) -> None:
        own = next((row for row in rows if row.version == version), None)
        try:
            if own is None:
                raise AdapterError(f"version {version} is being served, but has no row in the store")
            await self.served.load(own)
        except AdapterError as problem:
            log.error("cannot serve version=%s: %s", version, problem)
            await self._fall_back(rows, version, problem)
        else:
            await self.served.resume(version)

    async def _finish(self, row: VersionRow) -> None:
        try:
            await self.served.load(row)
        except AdapterError as problem:
            await self._refuse(row, GateReport(False, str(problem)))
        else:
            await self._serve(row, "passed the gate")

    async def _mend(self) -> None:
        """Serves owners of a damaged version the nearest intact one."""
        while self.served.damaged:
            scope, problem = self.served.damaged.popitem()
            rows, version = await self.store.versions(), await self.store.current(scope)
            if not version.is_base:
                await self._fall_back(rows, version, problem)

    async def _fall_back(self, rows: Sequence[VersionRow], version: PolicyVersion, problem: AdapterError) -> None:
        intact = PolicyVersion(version.scope, 0)
        for row in ancestors(rows, version):
            try:
                await self.served.load(row)
            except AdapterError as next_problem:
                log.error("cannot serve version=%s either: %s", row.version, next_problem)
            else:
                intact = row.version
                break
        await self.served.swap(intact, why=f"version {version} is damaged")
        notice = f"version {version} is damaged, so {intact} is served: {problem.problem}"
        self._notice(notice)
        log.error("%s", notice)

    def _notice(self, notice: str) -> None:
        self._status = replace(self._status, notice=notice)
        self._noticed = str(self.served.current(SHARED))


def _became(returned: ReturnedSamples) -> str:
    """What happened to the samples of a refused version, in words."""
    waiting, given_up = len(returned.waiting), len(returned.given_up)
    words = f"; {waiting} of its samples will be learned again, with a smaller learning rate" if waiting else ""
    return f"{words}; {given_up} of its samples are given up as not learnable" if given_up else words
