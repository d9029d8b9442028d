"""Hints that a user did not mean, found by the reply that they accepted after the correction, in a real store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from talk_double import (
    BARE,
    FIRST,
    LONG,
    REDONE,
    SHORT,
    TALK,
    WORDS,
    Base,
    Talk,
    Teaching,
    completion,
    learned,
    talking,
)
from train_doubles import HintRenderer, turn

from openclaw_rl.core.hint import Carry, Hint, HintSource
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.message import ToolCall
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE
from openclaw_rl.store.tables.lessons import Refusal
from openclaw_rl.teach.in_use import MISHEARD, HintsInUse
from openclaw_rl.teach.misheard import explained, in_common, is_misheard
from openclaw_rl.teach.redone import Hindsight
from openclaw_rl.teach.settings import TeachSettings


@pytest.fixture
async def talk(tmp_path: Path) -> AsyncIterator[Talk]:
    async with talking(tmp_path) as found:
        yield found


async def test_a_hint_that_the_accepted_reply_does_not_follow_teaches_nothing(talk: Talk) -> None:
    await talk.corrected(LONG)
    await talk.accepted()
    await talk.flow.teach.once()
    assert await talk.flow.state("first") is DropReason.MISHEARD
    (kept,) = await talk.flow.store.hints.of_user("ann")
    assert (kept.text, kept.is_in_use, kept.why) == (LONG, False, MISHEARD)
    assert await HintsInUse(talk.flow.store, Carry.WEIGHTS, TeachSettings(), len).beside(turn("next")) == ()
    asked = talk.base.asked
    await talk.flow.teach.once()
    assert talk.base.asked == asked  # once


@pytest.mark.parametrize(
    "base",
    [
        Base(hinted={LONG: -7.9, WORDS: -5.0}),  # it follows the hint
        Base(hinted={LONG: -9.0, WORDS: -6.5}),  # nor do the user's own words explain it: its result is another one
        Base(told=-6.5),  # the conversation hardly changed what is said
        Base(is_away=True),
    ],
)
async def test_nothing_is_misheard_where_the_accepted_reply_does_not_show_it(talk: Talk, base: Base) -> None:
    assert talk.flow.teach.teacher.misheard is not None
    talk.flow.teach.teacher.misheard.engine = base  # type: ignore[assignment]
    await talk.corrected(LONG)
    await talk.accepted()
    await talk.flow.teach.once()
    assert await talk.flow.state("first") is State.READY


async def test_a_reply_that_was_judged_before_the_correction_waits_for_its_verdict(talk: Talk) -> None:
    await talk.uncorrected()
    await talk.accepted()
    await talk.flow.store.end_session("s1", why="done", at_s=9.0)
    await talk.flow.teach.once()
    assert await talk.flow.state("good") is State.JUDGED
    assert not talk.base.asked
    assert talk.flow.teach._looked > 0  # others do not wait behind it
    await talk.judged(LONG)
    await talk.flow.teach.once()
    assert await talk.flow.state("first") is DropReason.MISHEARD
    while await talk.flow.teach.once():
        pass
    assert await talk.flow.state("good") is not State.JUDGED


@pytest.mark.parametrize("score", [0, -1])
async def test_only_what_a_user_was_content_with_shows_what_they_meant(talk: Talk, score: int) -> None:
    await talk.corrected(LONG)
    await talk.accepted(score=score)
    await talk.flow.teach.once()
    assert await talk.flow.state("first") is State.READY
    assert not talk.base.asked


async def test_of_several_hints_those_are_left_that_were_meant(talk: Talk) -> None:
    await talk.corrected(LONG, SHORT)
    await talk.accepted()
    await talk.flow.teach.once()
    (sample,) = await talk.flow.store.ready(limit=9)
    assert [hint.text for hint in sample.hints] == [SHORT]


@pytest.mark.parametrize("source", [HintSource.OWNER, HintSource.FOLLOWUP])
async def test_what_somebody_wrote_is_not_misheard(talk: Talk, source: HintSource) -> None:
    await talk.corrected(LONG, source=source)
    await talk.accepted()
    await talk.flow.teach.once()
    assert await talk.flow.state("first") is State.READY


async def test_each_correction_before_the_accepted_reply_is_compared_with_it(talk: Talk) -> None:
    await talk.corrected(LONG)
    await talk.corrected(SHORT, name="again", parent="first")
    await talk.accepted(parent="again")
    await talk.flow.teach.once()
    assert await talk.flow.state("first") is DropReason.MISHEARD
    assert await talk.flow.state("again") is State.READY


async def test_a_sample_stays_if_one_of_its_corrections_hints_was_meant(talk: Talk) -> None:
    await talk.corrected(LONG, SHORT)
    await talk.flow.teach.once()
    await talk.accepted()
    await talk.flow.teach.once()
    assert await talk.flow.state("first") is State.READY


async def test_a_sample_that_waits_for_a_step_is_taken_out(talk: Talk) -> None:
    await talk.corrected(LONG)
    await talk.flow.teach.once()
    assert await talk.flow.state("first") is State.READY
    await talk.accepted()
    await talk.flow.teach.once()
    assert await talk.flow.state("first") is DropReason.MISHEARD
    assert not talk.publishing.asked


async def test_a_version_that_learned_it_is_taken_back_as_soon_as_it_is_served(talk: Talk) -> None:
    talk.publishing.takes = False
    await learned(talk)
    await talk.accepted()
    await talk.flow.teach.once()
    await talk.flow.teach.once()
    assert talk.publishing.asked[-1] == ("ann", BASE, (LONG,))
    tries = len(talk.publishing.asked)  # the gate has not decided yet, so it is tried again
    (candidate,) = await talk.flow.store.candidates()
    await talk.flow.pass_gate(candidate.version)
    talk.publishing.takes = True
    await talk.flow.teach.once()
    await talk.flow.teach.once()
    assert len(talk.publishing.asked) == tries + 1


@pytest.mark.parametrize("follows", [True, False])
async def test_what_was_accepted_is_learned_with_its_users_own_words_as_the_hint(talk: Talk, follows: bool) -> None:
    base = Teaching((), follows)
    talk.base.hinted[WORDS] = -2.0
    talk.flow.asks(base=base, hindsight=Hindsight(talk.base, HintRenderer()))  # type: ignore[arg-type]
    await talk.corrected(LONG)
    await talk.accepted(score=1)
    await talk.flow.store.end_session("s1", why="done", at_s=9.0)
    while await talk.flow.teach.once():
        pass
    ready = await talk.flow.store.ready(limit=9)
    kept = [hint.text for hint in await talk.flow.store.hints.of_user("ann") if hint.is_in_use]
    assert base.taught == [WORDS]
    assert await talk.flow.state("first") is DropReason.MISHEARD
    if follows:
        assert [(one.turn, one.prompt, one.response, one.hints[0].text) for one in ready] == [
            ("good", BARE, REDONE, WORDS)
        ]
        assert kept == [WORDS]
    else:
        assert kept == [] and not any(one.is_taught for one in ready)


async def test_what_a_version_learned_from_it_is_told_in_those_words(talk: Talk) -> None:
    talk.base.hinted[WORDS] = -2.0
    talk.flow.asks(base=Teaching(()), hindsight=Hindsight(talk.base, HintRenderer()))  # type: ignore[arg-type]
    await talk.corrected(LONG)
    await talk.accepted()
    await talk.flow.store.end_session("s1", why="done", at_s=9.0)
    while await talk.flow.once():
        pass
    talk.flow.now_s += 100.0
    while await talk.flow.once():
        pass
    assert await talk.flow.state("good") is State.TRAINED
    effects = talk.flow.store.effects
    assert {name: lesson.hints for name, lesson in (await effects.lessons(["good", "first"])).items()} == {
        "good": (WORDS,),
        "first": (LONG,),
    }
    (candidate,) = await talk.flow.store.candidates()
    await talk.flow.pass_gate(candidate.version)
    (wish,) = await effects.taught()
    assert (wish.hint, wish.words, wish.turns) == (WORDS, WORDS, ("good",))


async def test_words_that_mean_nothing_in_another_task_are_no_hint(talk: Talk) -> None:
    misheard = talk.flow.teach.teacher.misheard
    assert misheard is not None
    await talk.corrected(LONG)
    row = await talk.flow.store.row("first")
    assert row is not None and not misheard.is_misheard(row)  # as far as is known
    await talk.accepted()
    await talk.flow.teach.once()
    row = await talk.flow.store.row("first")
    misheard.let_go()  # as after a restart
    assert row is not None and misheard.is_misheard(row)
    assert misheard.meant(row) == (Hint(WORDS, HintSource.FOLLOWUP),)
    misheard.own_words = lambda after: Hint("The right answer is 14.", HintSource.FOLLOWUP)
    assert misheard.meant(row) == ()


async def test_a_version_that_is_served_while_it_is_taken_back_is_not_left_out(talk: Talk) -> None:
    await learned(talk)
    await talk.accepted()
    (candidate,) = await talk.flow.store.candidates()
    talk.publishing.passes = lambda: talk.flow.pass_gate(candidate.version)  # right after it was looked for in vain
    talk.publishing.takes = False
    await talk.flow.teach.once()
    assert len(talk.publishing.asked) == 1
    talk.publishing.takes, talk.publishing.passes = True, None
    await talk.flow.teach.once()
    assert len(talk.publishing.asked) == 2


async def test_a_sample_that_a_refused_version_gave_back_is_not_learned_again(talk: Talk) -> None:
    talk.publishing.takes = False
    await learned(talk)
    await talk.accepted()
    await talk.flow.teach.once()
    (candidate,) = await talk.flow.store.candidates()
    refusal = Refusal("too far", {}, most=2, is_counted=True)
    await talk.flow.store.refusals.refuse(candidate.version, refusal)
    assert await talk.flow.state("first") is State.READY
    await talk.flow.teach.once()
    assert await talk.flow.state("first") is DropReason.MISHEARD


async def test_other_replies_show_nothing() -> None:
    first = replace(turn("first"), completion=completion(FIRST))
    good = replace(turn("good"), completion=completion(REDONE), prompt=Prompt(TALK))

    async def found(accepted: Turn, *hints: str) -> list[str]:
        nats = await explained(Base(), HintRenderer(), accepted, first, hints)  # type: ignore[arg-type]
        return [hint for hint in hints if is_misheard(nats, hint)]

    assert await found(good, LONG, SHORT) == [LONG]
    called = replace(good.reply, tool_calls=(ToolCall("call_1", "look", "{}"),))
    assert not await found(replace(good, reply=called), LONG)
    assert not await found(replace(good, completion=first.completion), LONG)  # the same again
    assert not await found(replace(good, completion=completion((8,))), LONG)  # "You are welcome."
    assert not await found(replace(good, prompt=Prompt(TALK, images=("one",))), LONG)
    assert not await found(good, "bad hint")  # the template refuses it


def test_what_two_replies_have_in_common() -> None:
    assert in_common((1, 2, 3), (3, 2, 1)) == 1.0
    assert in_common((1, 1, 2, 2), (1, 3, 3, 3)) == 0.25
    assert in_common((), ()) == 0.0


async def test_what_two_accepted_replies_show_is_known_of_both_hints_after_a_restart(talk: Talk) -> None:
    """One reply shows that the one hint was misheard, a later one the other: then nothing is left to learn from."""
    misheard = talk.flow.teach.teacher.misheard
    assert misheard is not None
    await talk.corrected(LONG, SHORT)
    row = await talk.flow.store.row("first")
    assert row is not None
    await misheard.undo(row, [LONG])
    misheard.let_go()  # as after a restart
    await talk.flow.teach.once()
    assert await talk.flow.state("first") is State.READY
    await misheard.undo(row, [SHORT])
    misheard.let_go()
    await talk.flow.teach.once()
    assert await talk.flow.state("first") is DropReason.MISHEARD
