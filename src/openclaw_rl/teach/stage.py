"""The teaching stage: judged turns from which there is something to learn become samples; the others are dropped."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from openclaw_rl.core.facts import StoreFacts
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.protocols import Renderer, TakesBack
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.stage import StageReport
from openclaw_rl.core.turn import Turn
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import JudgedTurn
from openclaw_rl.teach.admit import admission, has_signal, refusal
from openclaw_rl.teach.floods import DailyCounts
from openclaw_rl.teach.in_vain import CorrectionMonitor
from openclaw_rl.teach.rules import LearningRules, Teacher
from openclaw_rl.teach.samples import SampleMaker
from openclaw_rl.teach.settings import TeachSettings
from openclaw_rl.teach.status import TeachStatus, teach_findings

log = logging.getLogger(__name__)
AT_ONCE = 64
SLICE_S = 2.0  # turns are examined for about this long before other work is done
POLL_S = 2.0
LOOK_AGAIN = 200  # rounds after which all turns that wait are examined again
AGAINST_KEPT = 10_000  # pairs of a rehearsal sample and a hint for which it is remembered whether they disagree


@dataclass(slots=True)
class TeachStage:
    """Makes samples of judged turns, or drops them with a reason.

    `publishing` serves an earlier version again if what was learned from a user since then had no effect. Asking a
    teacher takes seconds, or minutes while the engine is busy serving.
    """

    store: Store
    renderer: Renderer
    settings: TeachSettings
    rules: LearningRules
    teacher: Teacher = field(default_factory=Teacher)
    publishing: TakesBack | None = None
    clock: Callable[[], float] = time.monotonic
    floods: DailyCounts | None = None  # made from the settings if none is given
    looking_at: int = 0  # judged turns that are being examined
    is_resting: bool = False  # nothing that waits can be decided now
    before_samples: Callable[[], None] = lambda: None  # called when samples are about to be made
    _in_vain: CorrectionMonitor = field(init=False)
    _against: dict[tuple[str, str], bool] = field(default_factory=dict)  # by turn and hint
    _looked: int = 0  # turns judged up to here were examined, and wait for their sessions
    _rounds: int = 0
    _unanswering: set[str] = field(default_factory=set)  # turns being examined for which `answers` was False
    _rested: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.floods = self.floods or DailyCounts(self.settings)
        self._in_vain = CorrectionMonitor(self.settings.in_vain_turns)

    def leave_steps_alone(self, in_step: Callable[[], frozenset[str]]) -> None:
        """Sets what returns the turns of the step that is being taken."""
        if self.teacher.misheard is not None:
            self.teacher.misheard.in_step = in_step

    async def run(self) -> None:
        """Teaches until cancelled."""
        self.is_resting = False
        while True:
            self._rested.clear()
            if await self.once():
                continue
            self.is_resting = True
            self._rested.set()
            await self.store.wait(State.JUDGED, timeout_s=POLL_S)
            self.is_resting = False

    async def wait_until_looked_at(self) -> None:
        """Returns when all judged turns were examined, or after `SLICE_S`, so that a step includes related turns."""
        try:
            async with asyncio.timeout(SLICE_S):
                await self._rested.wait()
        except TimeoutError:
            return

    @property
    def _samples(self) -> SampleMaker:
        return SampleMaker(self.store, self.renderer, self.settings, self.rules, self.teacher)

    @property
    def name(self) -> str:
        """Its name as a stage."""
        return "teach"

    @property
    def status(self) -> TeachStatus:
        """The status at this moment."""
        return TeachStatus(self.looking_at, self.is_resting)

    def gauges(self) -> Mapping[str, float]:
        """How many judged turns are being examined."""
        return {"teach_looking_at": self.looking_at}

    async def report(self, facts: StoreFacts) -> StageReport:
        """The state of teaching."""
        costly = () if self.teacher.base is None else self.teacher.base.costly_hints()
        return StageReport(self.name, self.status, self.is_resting, findings=tuple(teach_findings(facts, costly)))

    def let_go(self) -> None:
        """Removes what is remembered of turns, as after a restart."""
        self._in_vain = CorrectionMonitor(self.settings.in_vain_turns)
        self._against.clear()
        self._looked = 0
        self._unanswering.clear()
        if self.floods is not None:
            self.floods.let_go()
        if self.teacher.served is not None:
            self.teacher.served.let_go()
        if self.teacher.base is not None:
            self.teacher.base.let_go()
        if self.teacher.misheard is not None:
            self.teacher.misheard.let_go()

    async def once(self) -> bool:
        """Makes samples of the turns that can be decided now, or drops them; True if anything changed or more is left.

        At most `AT_ONCE` turns are read at a time: thousands may wait for their sessions, and are read again when these
        have a sample or are over. It returns after about `SLICE_S`, so that a step need not wait for all of them.
        """
        self._rested.clear()
        has_moved = await self._look()
        if not has_moved:
            self._rested.set()
        return has_moved

    async def _look(self) -> bool:
        until_s = self.clock() + SLICE_S
        if self._rounds % LOOK_AGAIN == 0:  # some turns wait again without a new verdict
            self._looked = 0
        self._rounds += 1
        while True:
            rows = await self.store.judged(limit=AT_ONCE, looked=self._looked)
            self.looking_at = len(rows)
            try:
                has_moved, is_whole = await self._decide(rows, until_s)
            finally:
                self.looking_at = 0
            if not is_whole:
                return True
            self._unanswering.clear()
            self._looked = max([self._looked, *(row.seq for row in rows)])
            if self.teacher.misheard is not None and self.teacher.misheard.look_again:
                self._looked, self.teacher.misheard.look_again = 0, False
            if has_moved or len(rows) < AT_ONCE:
                return has_moved
            if self.clock() >= until_s:
                return True

    async def still_holds(self, rehearsal: Sample, since: Sequence[str]) -> bool:
        """Whether a rehearsal sample may be trained on again.

        Its turn must be in the store, its user must have the right to teach, and no hint given `since` may speak
        against it. If no model can be asked now, each such hint counts as speaking against it.
        """
        turn = await self.store.turn(rehearsal.turn)
        if turn is None or not self._may_teach(turn):
            return False
        for hint in since:
            if self.teacher.base is None:
                return False
            known = self._against.get((rehearsal.turn, hint))
            if known is None:
                known = await self.teacher.base.speaks_against(turn, rehearsal, hint)
                if known is None:
                    return False
                self._against[rehearsal.turn, hint] = known
                while len(self._against) > AGAINST_KEPT:
                    del self._against[next(iter(self._against))]
            if known:
                return False
        return True

    async def _decide(self, rows: Sequence[JudgedTurn], until_s: float) -> tuple[bool, bool]:
        """Whether anything was admitted or dropped, and whether all rows were examined before the time was up."""
        rows, misheard = (rows, {}) if self.teacher.misheard is None else await self.teacher.misheard.sifted(rows)
        refused = {row.turn.id: reason for row in rows if (reason := self._refusal(row)) is not None} | misheard
        for found in self._in_vain.found():
            log.warning("corrections without effect user=%s since version=%s: %s", found.user, found.since, found.why)
            if self.publishing is not None:
                await self.publishing.take_back(found.user, found.since, found.wish)
        contributing, complete = await self._sessions([row for row in rows if row.turn.id not in refused])
        decided = admission(rows, self.rules.wants, refused=refused, contributing=contributing, complete=complete)
        if decided.samples:
            self.before_samples()
        for row in sorted(decided.samples, key=lambda row: row.turn.at_s):  # `answers` needs earlier decisions
            await self._samples.admit(row, None)
            self.looking_at -= 1
            if self.clock() >= until_s:
                return True, False
        with_signal = {row.turn.id for row in decided.samples}
        silent = [row for row in rows if row.turn.id not in with_signal and row.turn.id not in refused]
        answers = set[str]()
        for row in silent:
            if row.turn.id in self._unanswering:
                continue
            (answers if await self._samples.answers(row) else self._unanswering).add(row.turn.id)
            if self.clock() >= until_s:
                return True, False
        for row, reward in decided.promoted:
            if row.turn.id not in answers:
                await self._samples.admit(row, reward)
                self.looking_at -= 1
                if self.clock() >= until_s:
                    return True, False
        for turn, reason in decided.dropped:
            if turn not in answers:
                await self._samples.drop(turn, reason)
        return bool(decided.samples or decided.promoted or decided.dropped or answers), True

    def _refusal(self, row: JudgedTurn) -> DropReason | None:
        reason = refusal(
            row.turn,
            row.verdict,
            may_teach=self._may_teach(row.turn),
            max_tokens=self.rules.max_sample_tokens,
            weights_learn=self.rules.weights_learn,
        )
        if reason is None and self._in_vain.rests(row.turn, row.verdict):
            return DropReason.IN_VAIN
        if reason is None and self.floods is not None and has_signal(row.turn, row.verdict, self.rules.wants):
            return self.floods.refusal(row.turn, row.verdict)
        return reason

    async def _sessions(self, rows: Sequence[JudgedTurn]) -> tuple[frozenset[str], frozenset[str]]:
        """The sessions that contribute already, and those that ended with every turn judged."""
        ended = {row.turn.session: row.session.end_why is not None for row in rows}
        contributing = frozenset([name for name in ended if await self.store.session_has_sample(name)])
        complete = frozenset(
            [
                name
                for name, has_ended in ended.items()
                if has_ended
                and name not in contributing
                and not await self.store.rows(limit=1, session=name, state=State.PAIRED)
            ]
        )
        return contributing, complete

    def _may_teach(self, turn: Turn) -> bool:
        return self.rules.may_teach is None or self.rules.may_teach(turn)
