"""Hints that a user did not mean: they ask for something else before they accept what follows them. A real store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from talk_double import LONG, SHORT, WORDS, Talk, learned, talking
from train_doubles import Following, verdict

from openclaw_rl.core.hint import Hint, HintSource, PlacedHint
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.teach.demonstrate import Assembled
from openclaw_rl.teach.in_use import UNWANTED, HintsInUse
from openclaw_rl.teach.misheard import MisheardHints
from openclaw_rl.teach.replaced import LATEST, LIVED_WITH, ReplacedHints

LEARNED = PolicyVersion("shared", 1)


@dataclass(frozen=True)
class Opposed(Following):
    """The base model, for which no hint has an effect beside the user's known ones."""

    async def demonstrated(
        self, turn: Turn, bare: Prompt, known: Sequence[PlacedHint], assembled: Assembled
    ) -> tuple[Sample, Sequence[PlacedHint]]:
        return await assembled(()), known


@pytest.fixture
async def talk(tmp_path: Path) -> AsyncIterator[Talk]:
    async with talking(tmp_path) as found:
        misheard = found.flow.teach.teacher.misheard
        assert misheard is not None
        replaced = ReplacedHints(found.flow.store, misheard, misheard.hints)
        found.flow.asks(base=Opposed(()), hints=misheard.hints, replaced=replaced)
        found.publishing.said = "before they accepted"
        yield found


async def served(talk: Talk) -> None:
    """The version that learned from the hint is served."""
    await learned(talk)
    (candidate,) = await talk.flow.store.candidates()
    assert candidate.version == LEARNED
    await talk.flow.pass_gate(LEARNED)


async def objected(talk: Talk, name: str, *, hint: str = SHORT, says: str = WORDS) -> None:
    """A reply of the version that learned is corrected, and the correction is looked at."""
    await talk.replied(name, LEARNED, says)
    await talk.judged(hint, name=name)
    while await talk.flow.teach.once():
        pass


async def kept(talk: Talk, text: str) -> tuple[bool, str]:
    (found,) = [hint for hint in await talk.flow.store.hints.of_user("ann") if hint.text == text]
    return found.is_in_use, found.why


async def test_a_version_whose_first_replies_are_corrected_for_what_it_learned_is_taken_back(
    talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    await served(talk)
    await objected(talk, "second")
    assert talk.publishing.asked == [("ann", BASE, (LONG, SHORT))]  # and what else learned the new hint meanwhile
    assert await kept(talk, LONG) == (False, UNWANTED)
    assert LONG not in caplog.text  # what a user wishes is in no log
    assert await talk.flow.state("second") is State.READY
    await objected(talk, "third")
    assert len(talk.publishing.asked) == 1


async def test_a_correction_that_still_waits_is_dropped(talk: Talk) -> None:
    await talk.corrected(LONG)
    await talk.flow.teach.once()
    assert await talk.flow.state("first") is State.READY
    await objected(talk, "second")
    assert await talk.flow.state("first") is DropReason.MISHEARD
    assert not talk.publishing.asked


async def test_a_user_who_accepted_a_reply_meant_what_they_said_before(talk: Talk) -> None:
    await served(talk)
    await talk.replied("liked", LEARNED)
    assert await talk.flow.store.judge(verdict("liked", 1))
    await objected(talk, "second")
    assert not talk.publishing.asked and (await kept(talk, LONG))[0]


@pytest.mark.parametrize("is_in_prompt", [True, False])
async def test_a_reply_of_the_version_before_shows_it_if_the_hint_was_in_its_prompt(
    talk: Talk, is_in_prompt: bool
) -> None:
    await talk.corrected(LONG)
    await talk.flow.teach.once()
    (hint,) = await talk.flow.store.hints.of_user("ann")
    carried = (PlacedHint(0, hint.id, LONG),) if is_in_prompt else ()
    await talk.replied("liked", BASE, WORDS, *carried)
    assert await talk.flow.store.judge(verdict("liked", 1))
    await objected(talk, "second")
    assert await talk.flow.state("first") is (State.READY if is_in_prompt else DropReason.MISHEARD)


@pytest.mark.parametrize("more", [0, 1])
async def test_a_user_who_read_many_replies_in_silence_meant_what_they_said_before(talk: Talk, more: int) -> None:
    await served(talk)
    for number in range(LIVED_WITH - 1 + more):
        await talk.replied(f"silent{number}", LEARNED)
    await objected(talk, "second")
    assert bool(talk.publishing.asked) is not bool(more)


async def test_what_an_owner_wrote_was_meant(talk: Talk) -> None:
    await talk.uncorrected()
    said = Hint(LONG, HintSource.OWNER)
    await talk.flow.store.hints.adopt("ann", said, at_s=1.0, turn="first")
    await objected(talk, "second")
    assert (await kept(talk, LONG))[0]


@pytest.mark.parametrize(("says", "is_heard"), [(WORDS, False), (WORDS.upper(), False), ("In detail!", True)])
async def test_the_same_words_are_not_heard_as_that_hint_again(talk: Talk, says: str, is_heard: bool) -> None:
    await served(talk)
    await objected(talk, "second")
    await objected(talk, "third", hint=LONG, says=says)
    assert await talk.flow.state("third") is (State.READY if is_heard else DropReason.MISHEARD)
    assert (await kept(talk, LONG))[0] is is_heard  # else it is not in prompts, although it was asked for once more


async def test_what_is_heard_so_before_the_newest_wish_is_looked_at_does_not_replace_it(talk: Talk) -> None:
    """All three corrections are judged before the first of them is learned from."""
    for name, hint in (("first", LONG), ("second", SHORT), ("third", LONG)):
        await talk.replied(name, BASE)
        await talk.judged(hint, name=name)
    while await talk.flow.teach.once():
        pass
    states = [await talk.flow.state(name) for name in ("first", "second", "third")]
    assert states == [DropReason.MISHEARD, State.READY, DropReason.MISHEARD]


async def test_a_hint_that_is_heard_of_other_words_after_the_newest_wish_is_the_newest_wish(talk: Talk) -> None:
    for name, hint, says in (("first", LONG, WORDS), ("second", SHORT, "Short!"), ("third", LONG, "In detail!")):
        await talk.replied(name, BASE, says)
        await talk.judged(hint, name=name)
    while await talk.flow.teach.once():
        pass
    states = [await talk.flow.state(name) for name in ("first", "second", "third")]
    assert states == [DropReason.MISHEARD, DropReason.MISHEARD, State.READY]


async def test_a_user_who_was_content_meanwhile_is_heard_again(talk: Talk) -> None:
    """They wanted the one, then the other, and now the first again."""
    await served(talk)
    await objected(talk, "second")
    await talk.replied("liked", BASE)
    assert await talk.flow.store.judge(verdict("liked", 1))
    await objected(talk, "third", hint=LONG)
    assert await talk.flow.state("third") is State.READY


async def test_a_user_who_never_says_that_they_are_content_is_heard_again_after_many_replies(talk: Talk) -> None:
    await served(talk)
    await objected(talk, "second")
    for number in range(LATEST):
        await talk.replied(f"silent{number}", BASE)
    await objected(talk, "third", hint=LONG)
    assert await talk.flow.state("third") is State.READY


def restarted(talk: Talk) -> None:
    """The flow goes on with a teacher that remembers nothing."""
    before = talk.flow.teach.teacher.misheard
    assert before is not None
    store, engine, renderer, hints, publishing = (
        before.store, before.engine, before.renderer, before.hints, before.publishing
    )  # fmt: skip
    misheard = MisheardHints(store, engine, renderer, hints, publishing)
    talk.flow.asks(base=Opposed(()), misheard=misheard, replaced=ReplacedHints(store, misheard, hints))


@pytest.mark.parametrize("is_content", [True, False])
async def test_the_same_words_are_not_heard_as_that_hint_after_a_restart(talk: Talk, is_content: bool) -> None:
    await served(talk)
    await objected(talk, "second")
    if is_content:
        await talk.replied("liked", BASE)
        assert await talk.flow.store.judge(verdict("liked", 1))
    restarted(talk)
    await objected(talk, "third", hint=LONG)
    assert await talk.flow.state("third") is (State.READY if is_content else DropReason.MISHEARD)
    assert len(talk.publishing.asked) == 1  # what is undone is not undone again


class Killed(BaseException):
    """The program is ended here."""


@pytest.mark.parametrize("at", ["hint", "version"])
async def test_a_program_that_is_killed_while_it_undoes_goes_on_after_a_restart(
    talk: Talk, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def kill(*_: object, **__: object) -> bool:
        raise Killed

    await served(talk)
    with monkeypatch.context() as patched:
        patched.setattr(*(HintsInUse, "misheard") if at == "hint" else (type(talk.publishing), "take_back"), kill)
        with pytest.raises(Killed):
            await objected(talk, "second")
    assert not talk.publishing.asked and (await kept(talk, LONG))[0] is (at == "hint")
    restarted(talk)
    while await talk.flow.teach.once():
        pass
    assert talk.publishing.asked == [("ann", BASE, (LONG, SHORT))]
    assert await kept(talk, LONG) == (False, UNWANTED)
    assert await talk.flow.state("second") is State.READY
    restarted(talk)
    await objected(talk, "third")
    assert len(talk.publishing.asked) == 1


async def test_a_version_that_waits_at_the_gate_is_taken_back_after_a_restart(talk: Talk) -> None:
    await learned(talk)
    talk.publishing.takes = False
    await objected(talk, "second")
    restarted(talk)
    talk.publishing.takes, tried = True, len(talk.publishing.asked)
    await talk.flow.pass_gate(LEARNED)
    await talk.flow.teach.once()
    assert len(talk.publishing.asked) == tried + 1
