"""What an owner said of some words in the judge's place holds for the same words said again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from judge_doubles import said, turn

from openclaw_rl.core.hint import Hint
from openclaw_rl.core.ledger import State
from openclaw_rl.core.next_state import NextState
from openclaw_rl.core.turn import Session, Turn
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.judge.settings import JudgeSettings
from openclaw_rl.judge.stage import JudgeStage, by_precedent
from openclaw_rl.store.db import Store
from openclaw_rl.store.forget.selection import ForgetTarget
from openclaw_rl.store.tables.overrules import Overrule

SILENT = Verdict("new", None, VerdictSource.VOTES)
BAD = Verdict("new", -1, VerdictSource.VOTES, hints=(Hint("Be brief."), Hint("Be kind.")))


def overrule(
    words: str, score: int, *, judged: int | None = None, hints: Sequence[str] = (), name: str = "old"
) -> tuple[Overrule, NextState]:
    return Overrule(name, 1.0, "owner", score, tuple(hints), (judged, ())), said(words, name)


def test_the_same_words_are_judged_as_their_owner_judged_them() -> None:
    found = by_precedent(SILENT, said("Hm...", "new"), [overrule("hm", -1)])
    assert (found.score, found.votes[-1].asked, found.hints) == (-1, "owner", ())


@pytest.mark.parametrize(
    ("words", "overruled"),
    [
        ("Hm, shorter.", [overrule("hm", -1)]),  # other words
        ("Really?", [overrule("really!", -1)]),  # a question is something else
        ("hm", [overrule("hm", -1, judged=1)]),  # the judge decides differently by now
        ("hm", [overrule("hm", -1), overrule("hm", 1, name="other")]),  # owners said this and that
        ("hm", [overrule("hm", -1, name="new")]),  # the turn itself
        ("...", [overrule("!", -1)]),  # no words at all
    ],
)
def test_anything_else_is_judged_as_before(words: str, overruled: list[tuple[Overrule, NextState]]) -> None:
    assert by_precedent(SILENT, said(words, "new"), overruled) is SILENT


def test_the_newest_word_on_a_turn_counts() -> None:
    found = by_precedent(SILENT, said("hm", "new"), [overrule("hm", 1), overrule("hm", -1)])
    assert found.score == 1


def test_hints_that_the_owner_let_stand_stay_and_others_go() -> None:
    found = by_precedent(BAD, said("No.", "new"), [overrule("no", -1, judged=-1, hints=["Be kind."])])
    assert (found.score, [hint.text for hint in found.hints]) == (-1, ["Be kind."])
    assert by_precedent(BAD, said("No.", "new"), [overrule("no", 0, judged=-1)]).hints == ()


def test_feedback_and_tools_are_no_matter_of_words() -> None:
    thumb = replace(SILENT, score=1, source=VerdictSource.FEEDBACK)
    assert by_precedent(thumb, said("hm", "new"), [overrule("hm", -1, judged=1)]) is thumb


class DeafJudge:
    """Hears nothing in anything."""

    async def judge(self, turn: Turn, next_state: NextState) -> Verdict:
        return replace(SILENT, turn=turn.id)


async def test_a_stage_goes_by_what_its_owner_said_until_that_is_forgotten(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    running = asyncio.create_task(JudgeStage(store, DeafJudge(), JudgeSettings(at_once=1)).run())
    try:
        assert await heard(store, "a") is None
        await store.overrules.add(Overrule("a", 2.0, "owner", -1, ()))
        assert await heard(store, "b") == -1
        rows = await store.overrules.of_user("ann", limit=9)
        assert [(one.turn, after.text) for one, after in rows] == [("a", "hm")]
        assert await store.overrules.of_user("bob", limit=9) == []
        await store.forgettings.begin(ForgetTarget(turn="a"), name="f", at_s=3.0, planned=lambda sql, goes: "{}")
        assert await store.overrules.of_user("ann", limit=9) == []
        assert await heard(store, "c") is None
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await store.aclose()


async def heard(store: Store, name: str) -> int | None:
    """The score of a turn after which somebody said hm."""
    await store.see_session(Session(name, "ann", "main", 0.0, 1.0))
    await store.add_turn(turn(name, session=name), chain=name)
    await store.pair(said("hm", name))
    async with asyncio.timeout(20):
        while (row := await store.row(name)) is None or row.verdict is None:
            await store.wait(State.JUDGED, timeout_s=0.1)
    return row.verdict.score
