"""Turns that wait for a judge get their verdicts, also from one that is away for a while."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import pytest
from judge_doubles import said, turn

from openclaw_rl.core.hint import Hint, HintSource
from openclaw_rl.core.ledger import State
from openclaw_rl.core.next_state import Feedback, NextState
from openclaw_rl.core.turn import Session, Turn
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.errors import JudgeError
from openclaw_rl.judge.settings import JudgeSettings
from openclaw_rl.judge.stage import JudgeStage, verdict_on
from openclaw_rl.store.db import Store

SETTINGS = JudgeSettings(at_once=2, retry_s=1.0, retry_max_s=8.0)
CORRECTION = Verdict("t1", -1, VerdictSource.VOTES, hints=(Hint("Write in plain sentences."),), mean=-1.0)


@dataclass
class ToldJudge:
    """Judges as it is told and notes whom it was asked about."""

    answer: Callable[[Turn], Verdict]
    asked: list[str] = field(default_factory=list)
    most_at_once: int = 0
    _at_once: int = 0

    async def judge(self, turn: Turn, next_state: NextState) -> Verdict:
        self.asked.append(turn.id)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await asyncio.sleep(0)
            return self.answer(turn)
        finally:
            self._at_once -= 1


def down(turn: Turn) -> Verdict:
    return replace(CORRECTION, turn=turn.id)


@dataclass
class Time:
    """Passes only where somebody pauses."""

    now_s: float = 100.0
    pauses: list[float] = field(default_factory=list)

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds
        await asyncio.sleep(0)


@asynccontextmanager
async def judging(
    home: Path, judge: ToldJudge, *names: str, settings: JudgeSettings = SETTINGS
) -> AsyncIterator[tuple[JudgeStage, Store, Time]]:
    """A stage that runs beside the test over a real store with these turns in it."""
    store, time = await Store.open(home), Time()
    await store.see_session(Session("s1", "ann", "main", 0.0, 1.0))
    for name in names:
        await store.add_turn(turn(name), chain=name)
        await store.pair(said("Please write that without bold text.", name))
    stage = JudgeStage(store, judge, settings, clock=lambda: time.now_s, pause=time.pause)
    running = asyncio.create_task(stage.run())
    try:
        async with asyncio.timeout(20):
            yield stage, store, time
    finally:
        running.cancel()
        await asyncio.wait([running])
        await store.aclose()


async def all_judged(store: Store, many: int) -> None:
    while (await store.counts())[State.JUDGED] < many:
        assert await store.wait(State.JUDGED, timeout_s=10)


async def test_every_waiting_turn_gets_its_verdict_some_at_once(tmp_path: Path) -> None:
    judge = ToldJudge(down)
    names = [f"t{index}" for index in range(6)]
    async with judging(tmp_path, judge, *names) as (stage, store, _):
        await all_judged(store, 6)
        row = await store.row("t3")
        assert row is not None and row.verdict == down(turn("t3"))
        await store.add_turn(turn("late"), chain="late")
        await store.pair(said("No.", "late"))
        await all_judged(store, 7)
    assert sorted(judge.asked) == sorted([*names, "late"])  # nobody twice
    assert judge.most_at_once <= 2
    assert (stage.status.judged, stage.status.failed, stage.status.waiting) == (7, 0, 0)
    assert stage.status.seconds_p50 == 0.0


class SlowStore(Store):
    """Its second reading of what waits returns only when the turn of the first has been judged meanwhile."""

    readings = 0
    committed = asyncio.Event()
    second_reading = asyncio.Event()

    async def paired(
        self, *, limit: int, failed: Mapping[str, int] = MappingProxyType({})
    ) -> list[tuple[Turn, NextState, Feedback | None]]:
        self.readings += 1
        rows = await super().paired(limit=limit, failed=failed)
        if self.readings == 2:
            self.second_reading.set()
            await self.committed.wait()
            for _ in range(5):  # the worker that judged it puts it down
                await asyncio.sleep(0)
        return rows

    async def judge(self, verdict: Verdict, *, keep: Hint | None = None) -> bool:
        await self.second_reading.wait()
        done = await super().judge(verdict, keep=keep)
        self.committed.set()
        return done


async def test_a_turn_judged_while_another_worker_reads_is_not_judged_again(tmp_path: Path) -> None:
    store = await SlowStore.open(tmp_path)
    await store.see_session(Session("s1", "ann", "main", 0.0, 1.0))
    for name in ("t1", "t2"):
        await store.add_turn(turn(name), chain=name)
    await store.pair(said("No."))
    judge = ToldJudge(down)
    running = asyncio.create_task(JudgeStage(store, judge, SETTINGS).run())
    async with asyncio.timeout(20):
        await all_judged(store, 1)
        await store.pair(said("No.", "t2"))
        await all_judged(store, 2)
    running.cancel()
    await asyncio.wait([running])
    await store.aclose()
    assert judge.asked == ["t1", "t2"]


async def test_a_judge_that_is_away_delays_and_loses_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    attempts = 0

    def away_for_a_while(turn: Turn) -> Verdict:
        nonlocal attempts
        attempts += 1
        if attempts <= 12:
            raise JudgeError("nobody answers")
        return down(turn)

    settings = replace(SETTINGS, at_once=1)
    with caplog.at_level(logging.WARNING):
        async with judging(tmp_path, ToldJudge(away_for_a_while), "t1", "t2", "t3", settings=settings) as (
            stage,
            store,
            time,
        ):
            await all_judged(store, 3)
            assert (await store.counts())[State.JUDGED] == 3
    # the pause doubles up to the longest: 1, 2, 4, then 8 s
    assert time.pauses == [1.0, 2.0, 4.0] + [8.0] * 9
    assert stage.status.failed == 12
    assert stage.status.last_error == ""
    # 79 s of absence are told twice, not twelve times
    assert len([record for record in caplog.records if "does not answer" in record.message]) == 2


async def test_while_a_judge_is_away_the_status_says_so(tmp_path: Path) -> None:
    told = asyncio.Event()
    attempts = 0

    def away(turn: Turn) -> Verdict:
        nonlocal attempts
        attempts += 1
        if attempts == 2:  # the first failure has been noted
            told.set()
        raise JudgeError("nobody answers", fix="start it")

    async with judging(tmp_path, ToldJudge(away), "t1", settings=replace(SETTINGS, at_once=1)) as (stage, store, _):
        await told.wait()
        assert stage.status.last_error == "nobody answers. Start it"
        assert (await store.counts())[State.PAIRED] == 1


async def test_a_turn_that_alone_fails_holds_nobody_up_and_is_given_up_in_the_end(tmp_path: Path) -> None:
    def picky(turn: Turn) -> Verdict:
        if turn.id == "odd":
            raise JudgeError("refused")
        return down(turn)

    judge = ToldJudge(picky)
    async with judging(tmp_path, judge, "odd", "t2", "t3") as (_, store, _):
        await all_judged(store, 3)
        row = await store.row("odd")
        assert row is not None and row.verdict is not None
        assert row.verdict.score is None
    assert judge.asked.count("odd") == 8
    assert judge.asked.index("t3") < 6


async def test_turns_can_wait_until_nobody_is_served(tmp_path: Path) -> None:
    answers = [False, False, False, True]
    judge = ToldJudge(down)
    store = await Store.open(tmp_path)
    await store.see_session(Session("s1", "ann", "main", 0.0, 1.0))
    await store.add_turn(turn(), chain="t1")
    await store.pair(said("No."))
    time = Time()
    settings = replace(SETTINGS, at_once=1, idle_only=True)
    stage = JudgeStage(
        store, judge, settings, is_idle=lambda: answers.pop(0) if answers else True,
        clock=lambda: time.now_s, pause=time.pause,
    )  # fmt: skip
    running = asyncio.create_task(stage.run())
    async with asyncio.timeout(20):
        await all_judged(store, 1)
    running.cancel()
    await asyncio.wait([running])
    await store.aclose()
    assert time.pauses == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("feedback", "score", "hints", "calls"),
    [
        (Feedback("t1", 1, None, 1.0), 1, (), 0),
        (Feedback("t1", 0, "well", 1.0), 0, (), 0),
        (Feedback("t1", -1, "Use metric units.", 1.0), -1, (Hint("Use metric units.", HintSource.FOLLOWUP),), 0),
        (Feedback("t1", -1, None, 1.0), -1, CORRECTION.hints, 1),  # no words: the judge looks for a hint
        (Feedback("t1", -1, "bad!", 1.0), -1, CORRECTION.hints, 1),
    ],
)
async def test_a_thumb_outranks_the_judge(feedback: Feedback, score: int, hints: tuple[Hint, ...], calls: int) -> None:
    judge = ToldJudge(lambda turn: replace(CORRECTION, score=1))
    verdict = await verdict_on((turn(), said("And now in metres."), feedback), judge)
    assert (verdict.score, verdict.source, verdict.hints) == (score, VerdictSource.FEEDBACK, hints)
    assert len(judge.asked) == calls
