"""What the base model makes of a hint: which one it heeds, beside which others, and what it then says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace

import pytest
from carry_doubles import label_renderer, labelled
from reading_double import (
    IDLE,
    KNOWN,
    PLAIN,
    SERVED,
    STERN,
    Reader,
    assembling,
    base_serves,
    elsewhere,
    prompt_of,
    reader,
    the_turn,
)

from openclaw_rl.core.completion import Finish, SampledToken
from openclaw_rl.core.hint import LABEL, PlacedHint
from openclaw_rl.core.message import Message, Role, message
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sample import HintPrompt, Sample, SampledReply
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.teach.demonstrate import Demonstrator
from openclaw_rl.teach.settings import TeachSettings
from openclaw_rl.testing.renderer import LetterRenderer


async def third_serves(turn: Turn) -> PolicyVersion:
    return PolicyVersion("shared", 3)


async def asked(
    engine: Reader,
    *hints: str,
    known: Sequence[str] = (),
    serves: Callable[[Turn], Awaitable[PolicyVersion]] = base_serves,
) -> Sample:
    guide = Demonstrator(engine, serves, label_renderer(), (2,), TeachSettings(probe_tokens=8))
    told = [PlacedHint(0, text, text) for text in known]
    return (await guide.demonstrated(the_turn(), prompt_of(()), told, assembling(*hints)))[0]


async def test_what_the_base_model_says_behind_the_hint_comes_with_the_sample() -> None:
    engine = reader(bare=SERVED, plain=(5, 6))
    found = await asked(engine, PLAIN)
    assert [(one.tokens, one.version) for one in found.shown] == [((5, 6), BASE)]
    assert [hint.text for hint in found.hints] == [PLAIN] and found.response == SERVED
    assert set(engine.asked) == {BASE}  # the served weights are not the teacher


async def test_of_several_hints_the_one_that_objects_most_is_learned_under() -> None:
    found = await asked(reader(bare=SERVED, idle=(7, 7, 8), plain=(5, 6)), IDLE, PLAIN)
    assert [hint.text for hint in found.hints] == [PLAIN]


async def test_a_hint_that_changes_nothing_teaches_nothing() -> None:
    found = await asked(reader(bare=SERVED), IDLE)
    assert found.hints == () and found.shown == () and found.score == -1.0


async def test_nor_one_behind_which_it_says_what_it_says_anyway() -> None:
    """It never would have said what was served, which follows a known hint; that is no doing of this one's."""
    engine = reader(bare=(5, 6), idle=(5, 6), known=SERVED, known_idle=SERVED)
    engine.colder = frozenset({IDLE})
    found = await asked(engine, IDLE, known=[KNOWN])
    assert found.hints == ()


async def test_but_where_the_reply_follows_nothing_known_that_may_be_what_is_asked_for() -> None:
    """The policy has learned something else, and its user wants back what the base model does."""
    found = await asked(reader(bare=(5, 6), idle=(5, 6)), IDLE)
    assert [hint.text for hint in found.hints] == [IDLE]
    assert [one.tokens for one in found.shown] == [(5, 6)]


async def test_or_where_the_hint_moves_the_weights_that_are_served() -> None:
    engine = reader(bare=(5, 6), idle=(5, 6), known=SERVED, known_idle=SERVED)
    engine.colder, engine.learned = frozenset({IDLE}), SERVED  # these say SERVED, but for the hint
    found = await asked(engine, IDLE, known=[KNOWN], serves=third_serves)
    assert [hint.text for hint in found.hints] == [IDLE]


@pytest.mark.parametrize(
    ("mostly", "told", "shown"),
    [
        ((5, 6, 1), f"{KNOWN} {PLAIN}", (5, 6, 6)),  # what was served was a slip
        ((1, 1, 1), PLAIN, (1, 1, 6)),  # they have not learned it
        (SERVED, PLAIN, (1, 1, 6)),  # they say it always
        ((5,) * 8, PLAIN, (1, 1, 6)),  # no end is found in eight tokens
    ],
)
async def test_a_slip_is_told_beside_what_the_served_weights_mostly_follow(
    mostly: tuple[int, ...], told: str, shown: tuple[int, ...]
) -> None:
    """Told alone, a reply that follows nothing would cost what was learned."""
    engine = reader(bare=(1, 1, 1), known=(5, 6, 1), plain=(1, 1, 6), known_plain=(5, 6, 6))
    engine.learned = mostly
    found = await asked(engine, PLAIN, known=[KNOWN], serves=third_serves)
    assert [hint.text for hint in found.hints] == [told]
    assert [one.tokens for one in found.shown] == [shown]


async def test_beside_it_stand_the_known_hints_that_the_reply_follows() -> None:
    """The policy has learned to say what KNOWN wants; read without it, the teacher would unlearn that."""
    engine = reader(bare=(1, 1, 1), known=SERVED, plain=(5, 6), known_plain=(7, 5, 6))
    found = await asked(engine, PLAIN, known=[KNOWN, STERN])
    assert [hint.text for hint in found.hints] == [f"{KNOWN} {PLAIN}"]  # nothing of STERN, which bears on other replies
    assert [one.tokens for one in found.shown] == [(7, 5, 6)]


async def test_a_hint_that_the_reply_happens_to_follow_is_left_out_if_it_changes_nothing_here() -> None:
    """Weights that learned it follow it too widely, and with it in the teacher's prompt that would be taught."""
    engine = reader(bare=(5,), known=(5, 7, 7), plain=(5, 6), plain_known=(5, 6, 7))
    sample = await asked(engine, PLAIN, known=[KNOWN])
    assert [hint.text for hint in sample.hints] == [PLAIN]


async def test_nor_must_the_base_model_have_said_what_was_served_without_them() -> None:
    """Its user wants another form than the one that the weights have learned, and that it never had by itself."""
    engine = reader(bare=(1, 1, 1), known=SERVED, plain=(5, 6), known_plain=SERVED)
    found = await asked(engine, PLAIN, known=[KNOWN])
    assert [hint.text for hint in found.hints] == [PLAIN]
    assert [one.tokens for one in found.shown] == [(5, 6)]


async def test_unless_they_drown_it() -> None:
    engine = reader(bare=(7, 1, 1), known=SERVED, plain=(5, 6), known_plain=SERVED)
    found = await asked(engine, PLAIN, known=[KNOWN])
    assert [hint.text for hint in found.hints] == [PLAIN]
    assert [one.tokens for one in found.shown] == [(5, 6)]


async def test_other_ways_to_say_it_are_shown_beside_the_likeliest_each_once_and_only_whole() -> None:
    """Where a reply may begin in several ways, the likeliest says nothing of how the others go on."""
    endless = (9,) * 8

    class Various(Reader):
        async def generate(
            self, prompt: Prompt, sampling: Sampling, version: PolicyVersion
        ) -> AsyncIterator[SampledToken]:
            warm.append((sampling.temperature, sampling.seed))
            said = self._reply(prompt.tokens) if sampling.seed == 0 else ways[(sampling.seed or 0) - 1]
            for index, token in enumerate(said):
                yield SampledToken(token, -0.1, -0.1, version, finish=Finish.STOP if index + 1 == len(said) else None)

    warm: list[tuple[float, int | None]] = []
    ways: list[tuple[int, ...]] = [(6, 5), (5, 6), endless]
    engine = Various(reader(bare=SERVED, plain=(5, 6)).says)
    found = await asked(engine, PLAIN)
    assert [one.tokens for one in found.shown] == [(5, 6), (6, 5)]
    assert warm == [(0.0, 0), (1.0, 1), (1.0, 2), (1.0, 3)]


async def test_a_reply_that_finds_no_end_is_not_shown() -> None:
    engine = reader(bare=SERVED, plain=(5, 6))
    engine.longest = 0
    found = await asked(engine, PLAIN)
    assert [hint.text for hint in found.hints] == [PLAIN] and found.shown == ()


async def test_without_an_engine_or_with_images_it_is_the_sample_as_assembled() -> None:
    engine = reader(bare=SERVED, plain=(5, 6))
    engine.is_away = True
    found = await asked(engine, PLAIN, known=[KNOWN])
    assert [hint.text for hint in found.hints] == [f"{KNOWN} {PLAIN}"] and found.shown == ()
    engine.is_away = False
    guide = Demonstrator(engine, base_serves, label_renderer(), (2,), TeachSettings())
    seen = replace(the_turn(), prompt=replace(prompt_of(()), images=("a",)))
    assert (await guide.demonstrated(seen, prompt_of(()), (), assembling(PLAIN)))[0].shown == ()
    assert not engine.asked


def test_a_sample_holds_one_other_reply_of_the_right_kind() -> None:
    with pytest.raises(ValueError, match="policy's own"):
        Sample("t", "s", "u", (1,), (7,), (-0.1,), (True,), BASE, own=SampledReply((5,), (-0.1,), BASE))


class Refusing(LetterRenderer):
    """A template that takes no hints."""

    def reread(self, turn: Turn, messages: Sequence[Message]) -> Prompt:
        raise ValueError("refused")


async def test_a_known_hint_that_the_template_refuses_is_left_out() -> None:
    engine = reader(bare=(7, 1, 1), known=SERVED, plain=(5, 6))
    guide = Demonstrator(engine, base_serves, Refusing(labelled), (2,), TeachSettings(probe_tokens=8))
    found, _ = await guide.demonstrated(the_turn(), prompt_of(()), [PlacedHint(0, KNOWN, KNOWN)], assembling(PLAIN))
    assert [hint.text for hint in found.hints] == [PLAIN] and found.shown


class InOrder(LetterRenderer):
    """Prompts in which the order of hints counts: the label's hint is as long as `KNOWN` if that one comes last."""

    def reread(self, turn: Turn, messages: Sequence[Message]) -> Prompt:
        backwards = f"{LABEL} {PLAIN} {KNOWN}"
        return super().reread(
            turn, [item.with_text(item.text.replace(backwards, f"{LABEL} {STERN}")) for item in messages]
        )


async def test_a_hint_that_means_nothing_in_another_task_is_learned_beside_what_is_followed_or_not_at_all() -> None:
    """Learned alone it would undo what the reply follows, for nothing that comes again."""
    once = replace(the_turn(), messages=(message(Role.USER, "What did Anna buy?"),))

    async def found(hint: str, engine: Reader, known: Sequence[str]) -> Sample:
        told = [PlacedHint(0, text, text) for text in known]
        guide = Demonstrator(engine, base_serves, label_renderer(), (2,), TeachSettings(probe_tokens=8))

        async def assembled(beside: Sequence[PlacedHint]) -> Sample:
            made = await assembling(PLAIN)(beside)
            return replace(made, hints=tuple(replace(one, text=one.text.replace(PLAIN, hint)) for one in made.hints))

        return (await guide.demonstrated(once, prompt_of(()), told, assembled))[0]

    drowned = {"bare": (7, 1, 1), "known": SERVED, "plain": (5, 6), "known_plain": SERVED}
    assert (await found("Answer plainly", reader(**drowned), [KNOWN])).hints != ()
    for hint in ("The right answer is 14", "It was about Anna"):
        assert (await found(hint, reader(**drowned), [KNOWN])).hints == ()
        beside = await found(hint, reader(**{**drowned, "known_plain": (7, 5, 6)}), [KNOWN])
        assert [one.text for one in beside.hints] == [f"{KNOWN} {hint}"]
        assert (await found(hint, reader(**drowned), [])).hints != ()  # there is nothing to be undone


async def test_other_requests_are_asked_with_the_turns_own_hint_and_each_known_one_by_itself() -> None:
    """One text of both would be read or not as a whole, and what it holds would be lost where the new hint is."""
    engine = reader(bare=(7, 1, 1), known=SERVED, plain=(5, 6), known_plain=(7, 5, 6))
    others = elsewhere(engine)
    guide = Demonstrator(engine, base_serves, label_renderer(), (2,), TeachSettings(probe_tokens=8), others)
    told = [PlacedHint(0, KNOWN, KNOWN), PlacedHint(0, IDLE, IDLE)]
    found, _ = await guide.demonstrated(the_turn(), prompt_of(()), told, assembling(PLAIN))
    assert [hint.text for hint in found.hints] == [f"{KNOWN} {PLAIN}"]
    assert others.asked == [(PLAIN, [KNOWN, IDLE])]
    others.contradictions.note(IDLE, [True] * 9, left_out=9)  # the base model cannot follow it
    await guide.demonstrated(the_turn(), prompt_of(()), told, assembling(PLAIN))
    assert others.asked[1:] == [(PLAIN, [KNOWN])]


async def test_what_a_hint_has_no_effect_beside_is_not_read_with_it_on_other_requests_either() -> None:
    """The demonstrations there would follow the form that the user corrects."""
    engine = reader(bare=(7, 1, 1), known=SERVED, plain=(5, 6), known_plain=SERVED)
    others = elsewhere(engine)
    guide = Demonstrator(engine, base_serves, label_renderer(), (2,), TeachSettings(probe_tokens=8), others)
    told = [PlacedHint(0, KNOWN, KNOWN), PlacedHint(0, IDLE, IDLE)]
    found, gave_way = await guide.demonstrated(the_turn(), prompt_of(()), told, assembling(PLAIN))
    assert others.asked == [(PLAIN, [IDLE])]
    assert found.hints and gave_way == told[:1]


async def test_no_hint_gives_way_to_one_that_has_an_effect_beside_it() -> None:
    told = [PlacedHint(0, KNOWN, KNOWN)]
    engine = reader(bare=(7, 1, 1), known=SERVED, plain=(5, 6), known_plain=(7, 5, 6))
    guide = Demonstrator(engine, base_serves, label_renderer(), (2,), TeachSettings(probe_tokens=8))
    found, gave_way = await guide.demonstrated(the_turn(), prompt_of(()), told, assembling(PLAIN))
    assert found.hints and list(gave_way) == []
    unfollowed = reader(bare=SERVED, plain=(5, 6))
    guide = replace(guide, engine=unfollowed)
    found, gave_way = await guide.demonstrated(the_turn(), prompt_of(()), told, assembling(PLAIN))
    assert found.hints and list(gave_way) == []


@pytest.mark.parametrize(("contrary", "is_taught"), [(1, True), (2, False)])
async def test_what_the_base_model_cannot_follow_without_losing_content_is_not_taught(
    contrary: int, is_taught: bool
) -> None:
    engine = reader(bare=SERVED, plain=(5, 6))
    others = elsewhere(engine)
    others.contradictions.note(PLAIN, [True] * contrary + [False] * (9 - contrary), left_out=contrary)
    guide = Demonstrator(engine, base_serves, label_renderer(), (2,), TeachSettings(probe_tokens=8), others)
    found, _ = await guide.demonstrated(the_turn(), prompt_of(()), [], assembling(PLAIN))
    assert bool(found.hints) is bool(found.shown) is is_taught


def behind(*hints: str) -> Turn:
    """What was sampled behind these."""
    placed = tuple(PlacedHint(0, text, text) for text in hints)
    return replace(the_turn(), carried=placed, prompt=prompt_of(hints))


async def test_a_correction_of_what_was_sampled_behind_hints_is_measured_without_them() -> None:
    """Of those in its prompt the teacher reads the ones that the reply follows; and it shows what it would say."""
    engine = reader(bare=(1, 1, 1), known=SERVED, plain=(5, 6), known_plain=(7, 5, 6))
    guide = Demonstrator(engine, base_serves, label_renderer(), (2,), TeachSettings(probe_tokens=8))
    turn = behind(KNOWN, STERN)

    async def assembled(heeded: Sequence[PlacedHint]) -> Sample:
        return replace(await assembling(PLAIN)(heeded), is_taught=True)

    found, _ = await guide.demonstrated(turn, prompt_of(()), turn.carried, assembled)
    assert [hint.text for hint in found.hints] == [f"{KNOWN} {PLAIN}"] and found.is_taught
    assert [one.tokens for one in found.shown] == [(7, 5, 6)]


async def rehearsed(engine: Reader, known: Sequence[str]) -> Sample:
    guide = Demonstrator(engine, base_serves, label_renderer(), (2,), TeachSettings(probe_tokens=8))
    return await guide.rehearsed(the_turn(), prompt_of(()), [PlacedHint(0, text, text) for text in known], assembling())


async def test_a_reply_that_nobody_corrected_rehearses_the_known_hints_that_it_follows() -> None:
    engine = reader(bare=(5, 6, 7), plain=SERVED, stern=(5, 6, 7))
    found = await rehearsed(engine, [PLAIN, STERN])
    assert found.rehearses == (PLAIN,) and found.shown == ()
    assert found.hints == (HintPrompt(PLAIN, prompt_of([PLAIN]).tokens),)
    assert set(engine.asked) == {BASE}


async def test_a_reply_that_follows_no_known_hint_rehearses_none() -> None:
    found = await rehearsed(reader(bare=SERVED, plain=SERVED), [PLAIN])
    assert found.rehearses == () and found.hints == ()
    away = reader(bare=(5, 6, 7), plain=SERVED)
    away.is_away = True
    assert (await rehearsed(away, [PLAIN])).rehearses == ()


async def test_nor_one_that_the_base_model_would_hardly_have_said_behind_them() -> None:
    """Weights that were led astray said it; a hint that makes it a little less strange is none that it follows."""
    led_astray = reader(bare=(5, 6, 5), plain=(7, 7, 5))
    assert (await rehearsed(led_astray, [PLAIN])).hints == ()
    assert (await rehearsed(reader(bare=(5, 6, 5), plain=SERVED), [PLAIN])).hints != ()


async def test_what_it_rehearses_is_read_in_the_order_that_makes_the_reply_likeliest() -> None:
    engine = reader(bare=(1, 1, 1), known=(7, 7, 1), plain=(1, 7, 7), known_plain=(7, 7, 1), stern=SERVED)
    guide = Demonstrator(engine, base_serves, InOrder(labelled), (2,), TeachSettings(probe_tokens=8))
    known = [PlacedHint(0, text, text) for text in (KNOWN, PLAIN)]
    found = await guide.rehearsed(the_turn(), prompt_of(()), known, assembling())
    assert found.rehearses == (PLAIN, KNOWN)
    assert found.hints == (HintPrompt(f"{PLAIN} {KNOWN}", prompt_of([STERN]).tokens),)


async def test_but_where_it_has_lost_one_of_them_it_is_read_as_they_came() -> None:
    """In the order that makes it likeliest the base model loses that wish, too: it would stay lost."""
    says = {"bare": (1, 1, 1), "known": (7, 7, 1), "plain": SERVED, "known_plain": (7, 7, 1), "stern": SERVED}
    guide = Demonstrator(reader(**says), base_serves, InOrder(labelled), (2,), TeachSettings(probe_tokens=8))
    known = [PlacedHint(0, text, text) for text in (KNOWN, PLAIN)]
    found = await guide.rehearsed(the_turn(), prompt_of(()), known, assembling())
    assert found.hints == ()  # the base model would hardly have said it there


async def test_what_was_said_behind_hints_is_told_by_those_it_follows() -> None:
    engine = reader(bare=(5, 6, 7), plain=SERVED, stern=(5, 6, 7), plain_stern=SERVED)
    guide = Demonstrator(engine, base_serves, label_renderer(), (2,), TeachSettings(probe_tokens=8))
    turn = behind(PLAIN, STERN)

    async def assembled(heeded: Sequence[PlacedHint]) -> Sample:
        words = [hint.text for hint in heeded]
        read = (HintPrompt(" ".join(words), prompt_of(words).tokens),) if words else ()
        return replace(await assembling()(heeded), is_taught=True, hints=read)

    async def said(turn: Turn) -> Sample:
        return await guide.rehearsed(turn, prompt_of(()), turn.carried, assembled)

    found = await said(turn)
    assert found.hints == (HintPrompt(PLAIN, prompt_of([PLAIN]).tokens),) and found.rehearses == (PLAIN,)
    as_ever = replace(turn, completion=replace(turn.completion, tokens=(5, 6, 7)))
    assert (await said(as_ever)).hints == ()
    engine.is_away = True
    assert [hint.text for hint in (await said(turn)).hints] == [f"{PLAIN} {STERN}"]  # all that stood there


async def test_a_later_hint_speaks_against_a_reply_that_the_base_model_would_not_give_with_it() -> None:
    follows = replace(await rehearsed(reader(bare=(5, 6, 7), plain=SERVED), [PLAIN]), turn="t")
    assert follows.rehearses == (PLAIN,)

    async def against(hint: str, **said: tuple[int, ...]) -> bool | None:
        engine = reader(bare=(5, 6, 7), plain=SERVED, **said)
        guide = Demonstrator(engine, base_serves, label_renderer(), (2,), TeachSettings(probe_tokens=8))
        engine.is_away = hint == IDLE
        return await guide.speaks_against(the_turn(), follows, hint)

    assert await against(STERN, plain_stern=(7, 7, 1)) is True
    assert await against(STERN, plain_stern=SERVED) is False
    assert await against(IDLE) is None
