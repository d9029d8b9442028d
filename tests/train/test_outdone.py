"""Hints that explain an accepted reply less well than its user's own words do give way to these, in a real store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from talk_double import LONG, SHORT, WORDS, Talk, Teaching, learned, talking
from train_doubles import HintRenderer

from openclaw_rl.core.hint import Carry
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.store.tables.lessons import Refusal
from openclaw_rl.teach.in_use import OUTDONE, HintsInUse
from openclaw_rl.teach.misheard import are_quotes_in
from openclaw_rl.teach.redone import Hindsight
from openclaw_rl.teach.settings import TeachSettings


@pytest.fixture
async def talk(tmp_path: Path) -> AsyncIterator[Talk]:
    async with talking(tmp_path) as found:
        yield found


async def outdone(talk: Talk, *, follows: bool = True, is_doubted: bool = True) -> Teaching:
    """The hint is followed, but the user's own words explain what they accept three times as well.

    So it was in an earlier conversation, if it `is_doubted`, from which nothing is learned any more.
    """
    talk.base.hinted |= {LONG: -7.5, WORDS: -2.5}
    base = Teaching((), follows)
    hints = HintsInUse(talk.flow.store, Carry.WEIGHTS, TeachSettings(), len)
    talk.flow.asks(base=base, hindsight=Hindsight(talk.base, HintRenderer()), hints=hints)  # type: ignore[arg-type]
    if is_doubted:
        await talk.corrected(LONG, name="earlier")
        await talk.accepted(name="fine", parent="earlier")
        while await talk.flow.teach.once():
            pass
        assert await talk.flow.state("earlier") is State.READY and base.taught == []
        assert await talk.flow.store.drop("earlier", DropReason.EXCLUDED)
    return base


async def kept_hints(talk: Talk) -> dict[str, str]:
    """The kept hints, and why each was retired or kept."""
    return {hint.text: hint.why for hint in await talk.flow.store.hints.of_user("ann")}


async def test_a_hint_that_its_users_own_words_outdo_gives_way_to_them(talk: Talk) -> None:
    base = await outdone(talk)
    await talk.corrected(LONG)
    await talk.flow.teach.once()
    assert await talk.flow.state("first") is State.READY
    await talk.accepted()
    while await talk.flow.teach.once():
        pass
    (sample,) = await talk.flow.store.ready(limit=9)
    assert (sample.turn, sample.hints[0].text) == ("good", WORDS)
    assert await talk.flow.state("first") is DropReason.MISHEARD
    assert (await kept_hints(talk))[LONG] == OUTDONE
    assert base.beside == []  # it is not read beside them


async def test_once_is_not_enough(talk: Talk) -> None:
    """Nearly all hints are right, and a model may understand them in another form than its user's words."""
    base = await outdone(talk, is_doubted=False)
    await talk.corrected(LONG)
    await talk.accepted()
    while await talk.flow.teach.once():
        pass
    assert base.taught == []
    assert await talk.flow.state("first") is State.READY


async def test_a_hint_stays_if_its_users_own_words_cannot_be_followed(talk: Talk) -> None:
    base = await outdone(talk, follows=False)
    await talk.corrected(LONG)
    await talk.accepted()
    while await talk.flow.teach.once():
        pass
    assert set(base.taught) == {WORDS}
    assert await talk.flow.state("first") is State.READY
    assert (await kept_hints(talk))[LONG] != OUTDONE


@pytest.mark.parametrize(
    ("nats", "hints"),
    [(-5.0, [LONG]), (-7.5, [LONG, SHORT])],
    ids=["it explains two thirds as much as the words", "another hint of the correction is not outdone"],
)
async def test_a_correction_stays_if_its_users_own_words_do_not_outdo_all_of_it(
    talk: Talk, nats: float, hints: list[str]
) -> None:
    base = await outdone(talk)
    talk.base.hinted[LONG] = nats
    await talk.corrected(*hints)
    await talk.accepted()
    while await talk.flow.teach.once():
        pass
    assert base.taught == []
    assert await talk.flow.state("first") is State.READY


async def test_a_version_that_learned_an_outdone_hint_stays_and_is_not_made_again(talk: Talk) -> None:
    await outdone(talk)
    await learned(talk)
    await talk.accepted()
    await talk.flow.teach.once()
    (candidate,) = await talk.flow.store.candidates()
    await talk.flow.store.refusals.refuse(candidate.version, Refusal("too far", {}, most=2, is_counted=True))
    assert await talk.flow.state("first") is State.READY
    while await talk.flow.teach.once():
        pass
    assert await talk.flow.state("first") is DropReason.MISHEARD
    assert talk.publishing.asked == []


async def test_a_step_that_reads_an_outdone_hint_is_not_disturbed(talk: Talk) -> None:
    await outdone(talk)
    talk.flow.teach.leave_steps_alone(lambda: frozenset({"first"}))
    await talk.corrected(LONG)
    await talk.accepted()
    while await talk.flow.teach.once():
        pass
    assert await talk.flow.state("first") is State.READY
    talk.flow.teach.leave_steps_alone(frozenset)  # it was given up
    await talk.flow.teach.once()
    assert await talk.flow.state("first") is DropReason.MISHEARD


def test_a_hint_that_quotes_what_the_accepted_reply_says_was_heard_right() -> None:
    assert are_quotes_in('Begin the reply with "Okay!"', "OKAY! It is four.")
    assert not are_quotes_in('Begin the reply with "Okay!" and end with "Bye."', "Okay! It is four.")
    assert not are_quotes_in("Keep the reply short.", "Keep the reply short.")


async def test_and_does_not_give_way(talk: Talk) -> None:
    base = await outdone(talk)
    quoting = 'Say "ok".'
    talk.base.hinted[quoting] = -7.5
    await talk.corrected(quoting)
    await talk.accepted(says="ok, four")
    while await talk.flow.teach.once():
        pass
    assert base.taught == []
    assert await talk.flow.state("first") is State.READY
