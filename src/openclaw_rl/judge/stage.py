"""The judging stage: takes what waits for a judge, asks, and writes the verdicts."""

from __future__ import annotations

import asyncio
import logging
import statistics
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from openclaw_rl.core.facts import StoreFacts
from openclaw_rl.core.ledger import State
from openclaw_rl.core.next_state import Feedback, NextState, NextStateSource
from openclaw_rl.core.protocols import Judge
from openclaw_rl.core.stage import StageReport
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.verdict import Verdict, VerdictSource, Vote
from openclaw_rl.errors import JudgeError
from openclaw_rl.judge.keep import kept_hint
from openclaw_rl.judge.reading import plain_words
from openclaw_rl.judge.settings import JudgeSettings
from openclaw_rl.judge.signals import feedback_hint, owner_messages
from openclaw_rl.judge.status import JudgeStatus, judge_findings
from openclaw_rl.store.db import Store
from openclaw_rl.store.tables.overrules import Overrule

log = logging.getLogger(__name__)
POLL_S = 5.0
DAY_S = 86400
LOG_EVERY_S = 60.0
# If a turn failed this often while others got their verdicts, it is itself the reason: it ends without a vote.
GIVE_UP_AFTER = 8
MOST_OVERRULED = 200  # of a user: what an owner said in the judge's place, the newest
MOST_FAILED = 10_000  # turns with failures that are remembered
Row = tuple[Turn, NextState, Feedback | None]
ASKED = "owner"  # of the vote that says so
RAW = "as its owner judged the same words before"


@dataclass(slots=True)
class JudgeStage:
    """Judges turns `at_once` at a time. A judge that is away delays learning and nothing else."""

    store: Store
    judge: Judge
    settings: JudgeSettings
    is_idle: Callable[[], bool] = lambda: True
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    status: JudgeStatus = field(default_factory=JudgeStatus)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _busy: set[str] = field(default_factory=set)
    _freed: asyncio.Event = field(default_factory=asyncio.Event)
    _failures: dict[str, tuple[int, int]] = field(default_factory=dict)  # turn -> times, verdicts given before
    _since_success: set[str] = field(default_factory=set)  # turns that failed since a verdict was last given
    _in_a_row: int = 0
    _not_before_s: float = 0.0
    _logged_s: float = float("-inf")
    _seconds: deque[float] = field(default_factory=lambda: deque(maxlen=200))

    @property
    def name(self) -> str:
        """Its name as a stage."""
        return "judge"

    def gauges(self) -> Mapping[str, float]:
        """What was judged, what waits, and what failed."""
        held = self.status
        return {
            "judge_waiting": held.waiting,
            "judge_in_flight": held.in_flight,
            "judge_failed": held.failed,
            "turns_judged": held.judged,
            "judge_failures_held": len(self._failures),  # turns that wait after judging failed
        }

    async def report(self, facts: StoreFacts) -> StageReport:
        """The state of judging."""
        limit, held = self.settings.daily_calls, self.status
        calls = await self.store.judge_calls(int(time.time() // DAY_S)) if limit else 0
        held = replace(held, calls_today=calls, calls_limit=limit)
        is_settled = facts.unjudged + held.in_flight == 0
        found = tuple(judge_findings(facts, held, is_live=True))
        return StageReport(self.name, held, is_settled, held.last_error, found)

    def let_go(self) -> None:
        """Clears its memory of turns, as after a restart; only while it does not run."""
        self._failures.clear()
        self._since_success.clear()

    async def run(self) -> None:
        """Judges until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self.settings.at_once):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            row = await self._next()
            try:
                await self._one(row)
            finally:
                self._busy.discard(row[0].id)
                self._freed.set()
                self.status = replace(self.status, in_flight=len(self._busy))

    async def _next(self) -> Row:
        """A turn to judge, those that failed before last. One worker looks at a time; the others wait for it."""
        async with self._turn:
            while True:
                wait_s = self._not_before_s - self.clock()
                if wait_s > 0:
                    await self.pause(wait_s)
                if self.settings.idle_only and not self.is_idle():
                    await self.pause(self.settings.retry_s)
                    continue
                self._freed.clear()
                # A turn that is finished while this reads may still look paired: it was busy when the reading began.
                busy = set(self._busy)
                failed = {turn: times for turn, (times, _) in self._failures.items()}
                rows = await self.store.paired(limit=self.settings.at_once + len(busy), failed=failed)
                free = [row for row in rows if row[0].id not in busy]
                self.status = replace(self.status, waiting=len(free))
                if free:
                    row = free[0]
                    self._busy.add(row[0].id)
                    self.status = replace(self.status, waiting=len(free) - 1, in_flight=len(self._busy))
                    return row
                await self._change()

    async def _change(self) -> None:
        """Until another turn waits, one that failed may be tried again, or some seconds have passed."""
        waits = [
            asyncio.ensure_future(self.store.wait(State.PAIRED, timeout_s=POLL_S)),
            asyncio.ensure_future(self._freed.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _one(self, row: Row) -> None:
        turn = row[0]
        started = self.clock()
        try:
            verdict = await verdict_on(row, self.judge)
            overruled = await self.store.overrules.of_user(turn.user, limit=MOST_OVERRULED)
            verdict = by_precedent(verdict, row[1], overruled)
        except JudgeError as problem:
            self._failed(turn.id, problem)
            if not self._is_hopeless(turn.id):
                return
            log.warning("gave up judging turn=%s after %d failures: %s", turn.id, GIVE_UP_AFTER, problem)
            verdict = Verdict(turn.id, None, VerdictSource.VOTES)
        else:
            self._in_a_row, self._not_before_s = 0, 0.0
            self._forgive()
            self._seconds.append(self.clock() - started)
            self.status = replace(
                self.status, judged=self.status.judged + 1, last_error="", seconds_p50=statistics.median(self._seconds)
            )
        self._failures.pop(turn.id, None)
        if await self.store.judge(verdict, keep=kept_hint(turn, verdict, _said(row))):
            log.info("judged turn=%s score=%s hints=%d", turn.id, verdict.score, len(verdict.hints))

    def _failed(self, turn: str, problem: JudgeError) -> None:
        times, before = self._failures.get(turn, (0, self.status.judged))
        self._failures[turn] = (times + 1, before)
        self._since_success.add(turn)
        if len(self._failures) > MOST_FAILED:  # the oldest failure is dropped
            del self._failures[next(iter(self._failures))]
        delay = min(self.settings.retry_s * 2 ** min(self._in_a_row, 30), self.settings.retry_max_s)
        self._in_a_row += 1
        self._not_before_s = self.clock() + delay
        self.status = replace(self.status, failed=self.status.failed + 1, last_error=str(problem))
        if self.clock() - self._logged_s >= LOG_EVERY_S:
            self._logged_s = self.clock()
            log.warning("the judge does not answer, turns wait: %s", problem)

    def _forgive(self) -> None:
        """Many turns that failed one after the other are not their fault: they come first again, oldest first."""
        if len(self._since_success) > 2 * self.settings.at_once:
            self._failures = {name: held for name, held in self._failures.items() if name not in self._since_success}
        self._since_success.clear()

    def _is_hopeless(self, turn: str) -> bool:
        times, before = self._failures[turn]
        return times >= GIVE_UP_AFTER and self.status.judged > before


async def verdict_on(row: Row, judge: Judge) -> Verdict:
    """The user's explicit verdict, else the judge's. Raises JudgeError.

    A thumb decides only the score; if a thumb down came without words, the judge is still asked for the hint.
    """
    turn, next_state, feedback = row
    if feedback is None:
        return await judge.judge(turn, next_state)
    own = feedback_hint(feedback)
    if feedback.score < 0 and own is None and next_state.text.strip():
        found = await judge.judge(turn, next_state)
        return replace(found, score=feedback.score, source=VerdictSource.FEEDBACK)
    hints = () if own is None else (own,)
    return Verdict(turn.id, feedback.score, VerdictSource.FEEDBACK, hints=hints)


def _said(row: Row) -> str:
    """What the user said about the turn, in feedback or in the next message."""
    _, next_state, feedback = row
    return "\n".join([*(item.text for item in owner_messages(next_state)), (feedback and feedback.text) or ""])


def by_precedent(verdict: Verdict, after: NextState, overruled: Sequence[tuple[Overrule, NextState]]) -> Verdict:
    """The verdict, or the owner's score in place of the judge's if `overruled` has the same words.

    So an owner need not say it twice. It must be the same user, the same words, and the same decision of the judge:
    words that look alike to a judge often differ in meaning (docs/decisions/0034-what-an-owner-overruled.md). Only rows
    of the store are used, so a turn that was forgotten no longer decides.

    `overruled` are owners' verdicts on turns of the same user, newest first. Of the judge's hints those stay that the
    owner kept then. If owners decided differently about the same words, the judge's verdict stays.
    """
    words = _words_said(after)
    if verdict.source is not VerdictSource.VOTES or not words:
        return verdict
    newest: dict[str, Overrule] = {}
    for said, heard in overruled:
        if said.turn != verdict.turn and _words_said(heard) == words:
            newest.setdefault(said.turn, said)
    same = [said for said in newest.values() if said.judged is not None and said.judged[0] == verdict.score]
    if len({said.score for said in newest.values()}) != 1 or not same:
        return verdict
    score, let_stand = same[0].score, same[0].hints
    hints = tuple(hint for hint in verdict.hints if hint.text in let_stand)
    if score == verdict.score and hints == verdict.hints:
        return verdict
    return replace(verdict, score=score, hints=hints, votes=(*verdict.votes, Vote(ASKED, RAW, score, judge=ASKED)))


def _words_said(after: NextState) -> tuple[str, ...]:
    if after.source is not NextStateSource.USER:
        return ()
    return tuple(word for item in owner_messages(after) for word in plain_words(item.text))
