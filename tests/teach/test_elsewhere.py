"""To which other requests a hint is shown: a user's own, those the base model makes up, then shipped ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from elsewhere_double import END, KIND, PLAIN, SHORT, Base, Bytes, ids_of, others, text

from openclaw_rl.core.completion import Scores, Span
from openclaw_rl.core.facts import StoreFacts
from openclaw_rl.core.hint import LABEL, PlacedHint
from openclaw_rl.core.message import Message, Role, ToolCall, message
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sample import HintPrompt, SampledReply
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.errors import EngineError
from openclaw_rl.teach.elsewhere import WARMTH, OtherReplies
from openclaw_rl.teach.made_up import of_many_kinds, shipped, thanks
from openclaw_rl.teach.other_requests import MOST_SHIPPED
from openclaw_rl.teach.status import teach_findings
from openclaw_rl.testing.turns import a_turn
from openclaw_rl.trainers.settings import MethodSettings


async def asked(found: OtherReplies, turn: Turn) -> list[str]:
    return [request.messages[-1].text for request in (await found.requests.openings(turn))[0]]


async def test_a_users_own_earlier_requests_come_first_then_made_up_ones_then_shipped_ones() -> None:
    engine = Base(invented=("how are things", "what is the time"))
    mine = a_turn("earlier", "What is 3 + 3?")
    found = others(engine, a_turn("same", "What is 2 + 2?"), mine, mine, most=4)
    assert await asked(found, a_turn("t")) == [
        "What is 3 + 3?", "how are things", "what is the time", shipped()[0]
    ]  # fmt: skip
    opened = engine.opened
    await asked(found, a_turn("t"))
    assert engine.opened < 2 * opened  # what was made up behind the same opening is used again


def test_what_is_learned_of_a_demonstration_is_what_it_is_drawn_from() -> None:
    assert MethodSettings().taught_temperature == WARMTH


async def test_of_many_earlier_requests_half_are_the_newest_and_the_others_are_spread_over_the_rest() -> None:
    """With the newest alone, wishes about what was asked some time ago were unlearned."""
    mine = [a_turn(f"earlier {number}", f"What is {number} + 3?") for number in range(40)]
    found, _ = await others(Base(), *mine, most=8).requests.openings(a_turn("t"))
    assert [one.turn for one in found] == [f"earlier {number}" for number in (0, 1, 2, 3, 4, 13, 22, 31)]
    few, _ = await others(Base(), *mine[:8], most=8).requests.openings(a_turn("t"))
    assert [one.turn for one in few] == [turn.id for turn in mine[:8]]


async def test_the_requests_that_earlier_wishes_came_with_are_among_them_however_old_they_are() -> None:
    """One step on hours unlearned both wishes about tours, of which none of the requests was."""
    mine = [a_turn(f"earlier {number}", f"What is {number} + 3?") for number in range(40)]
    asked_in = [a_turn(f"asked {number}", f"What is {number} - 3?") for number in range(3)]
    found, _ = await others(Base(), *mine, most=8, asked_in=[*asked_in, mine[1]]).requests.openings(a_turn("t"))
    names = [one.turn for one in found]
    assert names == ["asked 0", "asked 1", "asked 2", "earlier 1", "earlier 0", "earlier 2", "earlier 3", "earlier 21"]
    many = [a_turn(f"asked {number}", f"What is {number} - 3?") for number in range(20)]
    found, _ = await others(Base(), *mine, most=9, asked_in=many).requests.openings(a_turn("t"))
    assert [one.turn.split()[0] for one in found] == ["asked"] * 6 + ["earlier"] * 3


async def test_some_requests_are_made_up_however_many_the_user_has_asked() -> None:
    """They are of kinds that this user never corrected, and must keep their replies."""
    mine = [a_turn(f"earlier {number}", f"What is {number} + 3?") for number in range(8)]
    engine = Base(invented=("how are things", "what is the time", "where is the key"))
    found, _ = await others(engine, *mine, most=8).requests.openings(a_turn("t"))
    assert [one.messages[-1].text for one in found[6:]] == ["what is the time", "where is the key"]
    assert [one.turn for one in found[:6]] == [f"earlier {number}" for number in (0, 1, 2, 3, 4, 6)]


async def test_what_is_left_of_the_users_own_and_of_made_up_requests_checks_what_was_learned() -> None:
    mine = [a_turn(f"earlier {number}", f"What is {number} + 3?") for number in range(12)]
    engine = Base(invented=("how are things", "what is the time", "where is the key"))
    found, left = await others(engine, *mine, most=8).requests.openings(a_turn("t"), 6)
    assert not {one.messages for one in found} & {one.messages for one in left}
    assert [one.turn for one in left[:3]] == ["earlier 4", "earlier 5", "earlier 7"]
    assert [one.messages[-1].text for one in left[3:]] == ["how are things"]
    made = await others(engine, *mine, most=8, checks=6).shown(a_turn("t"), "Reply briefly.", ())
    assert [one.is_check for one in made] == [False] * (len(made) - 4) + [True] * 4
    assert not any(one.is_check for one in await others(engine, *mine, most=8).shown(a_turn("t"), "Reply briefly.", ()))


async def test_what_is_learned_from_does_not_depend_on_how_many_requests_were_made_up() -> None:
    """Of many the most different ones are odd: what was learned from them held less well elsewhere."""
    kinds = [
        f"{verb} the {thing}" for thing in ("key", "cat", "map", "song", "lamp") for verb in ("find", "show", "move")
    ]
    engine = Base(invented=(*[f"how are things in room {number}" for number in range(9)], *kinds))
    requests = others(engine, most=3).requests
    found, _ = await requests.openings(a_turn("t"))
    await requests.drawn_besides(a_turn("t"), found, 20)
    again, checks = await requests.openings(a_turn("t"), 12)
    assert again == found and len(checks) == 12


@pytest.mark.parametrize(
    ("checks", "known", "reply", "before", "found"),
    [
        (64, 0, 10, 0, 64),
        (64, 1, 10, 0, 32),
        (64, 9, 10, 0, 16),  # each is read with each of the ten hints
        (64, 0, 200, 0, 20),
        (64, 0, 4000, 0, 16),
        (64, 0, 10, 4000, 16),
        (8, 9, 4000, 4000, 8),
        (0, 0, 10, 0, 0),
    ],
)
async def test_checks_are_fewer_where_each_takes_long(
    checks: int, known: int, reply: int, before: int, found: int
) -> None:
    turn = a_turn("t", "x" * before + "What is 2 + 2?", reply="y" * (reply - 1))
    engine = Base(invented=tuple(f"how are things in room {number}" for number in range(100)))
    hints = [PlacedHint(0, str(number), f"In grades: say {number}.") for number in range(known)]
    made = await others(engine, most=1, checks=checks).shown(turn, "Reply briefly.", hints)
    assert sum(one.is_check for one in made) == found


def test_made_up_requests_are_of_many_kinds_however_rare() -> None:
    often = [f"Put {number} in front of {name}.txt" for number, name in enumerate(("map", "song", "talk", "plan"))]
    rare = ["Move map.txt into docs", "What is song.md called with the ending log?"]
    texts = [*often, rare[0], "Move plan.md into home", rare[1], "What is talk.txt called with the ending png?"]
    found = of_many_kinds(texts, 3)
    assert {text.split()[0] for text in found} == {"Put", "Move", "What"}
    assert of_many_kinds(texts, 99) != texts and sorted(of_many_kinds(texts, 99)) == sorted(texts)
    assert of_many_kinds(["", "…"], 2) == ["", "…"]


async def test_what_goes_on_from_a_conversation_or_is_long_is_no_other_request() -> None:
    later = a_turn("later", "What is 3 + 3?", parent="earlier")
    long = a_turn("long", "Sum this up: " + "word " * 400)
    called = a_turn("tool", (message(Role.USER, "Look it up"), message(Role.TOOL, "found")))
    assert await asked(others(Base(), later, long, called), a_turn("t")) == list(shipped()[:3])


async def test_a_long_request_is_one_if_nearly_all_of_it_was_read_with_the_corrected_turn() -> None:
    rules = message(Role.SYSTEM, "rule " * 400)
    mine = a_turn("mine", (rules, message(Role.USER, "What is 3 + 3?")))
    other = a_turn("other", (message(Role.SYSTEM, "Rule " * 400), message(Role.USER, "What is 4 + 4?")))
    turn = a_turn("t", (rules, message(Role.USER, "What is 2 + 2?")))
    assert (await asked(others(Base(), mine, other), turn))[0] == "What is 3 + 3?"
    assert "What is 4 + 4?" not in await asked(others(Base(), mine, other), turn)


@pytest.mark.parametrize("invented", [("hm",), ("",)])
async def test_what_is_no_request_is_not_taken_for_one(invented: tuple[str, ...]) -> None:
    assert await asked(others(Base(invented=invented)), a_turn("t")) == list(shipped()[:3])


async def test_a_model_that_does_not_expect_what_users_say_makes_nothing_up() -> None:
    engine = Base(invented=("how are things",), surprise=6.0)
    assert await asked(others(engine), a_turn("t")) == list(shipped()[:3])
    assert engine.opened == 0


async def test_a_complaint_that_it_does_not_expect_is_no_sign_of_such_a_model() -> None:
    """The reply to a third message was corrected, and the wish was taught on requests that the model cannot answer."""
    said = (message(Role.USER, "What is 2 + 2?"), message(Role.ASSISTANT, "ok"), message(Role.USER, "Less, please!"))
    engine = Base(invented=("how are things",), surprise=6.0, not_surprised="2 + 2")
    found, _ = await others(engine, most=2).requests.openings(a_turn("t", said))
    assert [one.messages[-1].text for one in found] == ["how are things", shipped()[0]]


async def test_the_system_text_stands_before_them() -> None:
    turn = a_turn("t", (message(Role.SYSTEM, "You are a clerk."), message(Role.USER, "What is 2 + 2?")))
    found, _ = await others(Base(invented=("how are things",)), most=2).requests.openings(turn)
    assert [request.messages[0].text for request in found] == ["You are a clerk."] * 2


async def test_what_the_base_model_says_with_the_hint_comes_with_the_prompt_without_it() -> None:
    (one, *_) = await others(Base(), a_turn("earlier", "What is 3 + 3?")).shown(a_turn("t"), PLAIN, ())
    assert (text(one.prompt), one.hint.text, one.turn) == ("What is 3 + 3?", PLAIN, "earlier")
    assert (text(one.hint.tokens), text(one.reply.tokens[:-1])) == (f"What is 3 + 3?\n\n{LABEL} {PLAIN}", "plain")
    assert one.reply.version == BASE


async def test_replies_are_drawn_each_with_a_seed_of_its_own() -> None:
    """The likeliest ones begin in one way; weights that learned to begin otherwise too could not go on from there."""
    engine = Base()
    await others(engine, most=3).shown(a_turn("t"), PLAIN, ())
    opened, later = engine.drawn[:3], engine.drawn[3:]
    assert opened == [(WARMTH, 0), (WARMTH, 1), (WARMTH, 2)] and 0.5 <= WARMTH <= 1.0
    assert [seed for _, seed in later] == [0, 1]


async def test_a_known_hint_that_changes_a_reply_there_is_read_beside_it() -> None:
    """Or what was learned before would be unlearned on every other request, and what is lost would stay lost."""
    known = [PlacedHint(0, "k", KIND), PlacedHint(0, "o", "Be brief.")]
    one, _thanked = await others(Base(), most=1).shown(a_turn("t"), PLAIN, known)
    assert one.hint.text == f"{KIND} {PLAIN}"


async def test_a_hint_that_changes_nothing_there_is_not_read_beside_one_that_is_followed() -> None:
    """Given many hints a small model follows fewer: this one would only make it forget the other."""
    known, elsewhere = [PlacedHint(0, "k", KIND)], "In grades: be exact."
    one, _thanked = await others(Base(), most=1).shown(a_turn("t"), elsewhere, known)
    assert (one.hint.text, text(one.reply.tokens[:-1])) == (KIND, "kind")
    (alone, *_) = await others(Base(), most=1).shown(a_turn("t"), elsewhere, ())
    assert alone.hint.text == elsewhere  # with nothing to hold on to, the reply stays as it was


async def test_a_hint_that_the_teacher_does_not_show_beside_others_is_read_alone() -> None:
    """A small model that is told several follows one of them: the new wish would not be learned at all."""
    one, _thanked = await others(Base(only=KIND), most=1).shown(a_turn("t"), PLAIN, [PlacedHint(0, "k", KIND)])
    assert (one.hint.text, text(one.reply.tokens[:-1])) == (PLAIN, "plain")


async def test_but_first_it_is_drawn_again_and_then_read_next_to_the_newest_of_them() -> None:
    """Read alone it would unlearn all the others there."""
    late = Base(only=KIND, late=2000)
    one, _thanked = await others(late, most=1).shown(a_turn("t"), PLAIN, [PlacedHint(0, "k", KIND)])
    assert (one.hint.text, text(one.reply.tokens[:-1])) == (f"{KIND} {PLAIN}", "plain")
    known = [PlacedHint(0, "k", KIND), PlacedHint(0, "s", SHORT)]
    one, _thanked = await others(Base(only=KIND), most=1).shown(a_turn("t"), PLAIN, known)
    assert one.hint.text == f"{SHORT} {PLAIN}"


@pytest.mark.parametrize("order", [f"{KIND} {PLAIN}", f"{PLAIN} {KIND}"])
async def test_hints_are_read_in_the_order_in_which_the_base_model_follows_all_of_them(order: str) -> None:
    """In another it shows one of them, and a demonstration that leaves out a learned wish unlearns it."""
    one, _thanked = await others(Base(both=(order,)), most=1).shown(a_turn("t"), PLAIN, [PlacedHint(0, "k", KIND)])
    assert (one.hint.text, text(one.reply.tokens[:-1])) == (order, "kinin")
    assert text(one.hint.tokens).endswith(f"{LABEL} {order}")
    known = [PlacedHint(0, "k", KIND), PlacedHint(0, "p", PLAIN)]
    one, _thanked = await others(Base(both=(order,)), most=1).shown(a_turn("t"), "In grades: be exact.", known)
    assert (one.hint.text, text(one.reply.tokens[:-1])) == (order, "kinin")


async def test_of_two_such_orders_it_is_the_one_in_which_the_reply_is_likelier() -> None:
    kind_first, kind_last = f"{KIND} {PLAIN}", f"{PLAIN} {KIND}"
    for unsure, order in ((kind_first, kind_last), (kind_last, kind_first)):
        engine = Base(both=(kind_first, kind_last), unsure=unsure)
        one, _thanked = await others(engine, most=1).shown(a_turn("t"), PLAIN, [PlacedHint(0, "k", KIND)])
        assert (one.hint.text, one.reply.logp) == (order, (-0.1,) * 6)


async def test_a_reply_without_an_end_is_left_out_and_an_engine_that_is_away_is_said() -> None:
    engine = Base()
    endless = a_turn("earlier", f"Count {engine.endless}")
    found = await others(engine, endless).shown(a_turn("t"), PLAIN, ())
    assert not [one for one in found if engine.endless in text(one.prompt)]
    assert await others(engine, most=0).shown(a_turn("t"), PLAIN, ()) == ()
    with pytest.raises(EngineError):
        await others(replace(engine, is_away=True)).shown(a_turn("t"), PLAIN, ())


async def test_conversations_go_on_after_the_correction_with_thanks_and_with_a_second_request() -> None:
    """A wish learned where conversations open alone changed other things further on: a list, or no end."""
    turn = a_turn("t")
    found = await others(Base(), most=2, answer="No bold text!").shown(turn, PLAIN, ())
    first, second = shipped()[:2]
    redone = f"{turn.messages[-1].text}\n{turn.reply.text}\nNo bold text!"
    thanked = f"{first}\nplain\n{thanks()[0]}"
    assert [text(one.prompt) for one in found] == [first, second, redone, thanked, f"{second}\nplain\n{first}"]
    assert [text(one.reply.tokens[:-1]) for one in found] == ["plain"] * 5


async def test_a_users_own_later_requests_stand_before_made_up_ones() -> None:
    later = a_turn("later", "What is 3 + 3?", parent="earlier")
    found = await others(Base(), later, a_turn("t", parent="x"), most=1, answer="No!").shown(a_turn("t"), PLAIN, ())
    assert [one.turn for one in found] == ["", "", "later", ""]
    assert text(found[2].prompt) == "What is 3 + 3?" and text(found[3].prompt).endswith(thanks()[0])


class Calling(Bytes):
    """Reads each reply as a call of a tool."""

    def decode(self, tokens: Sequence[int]) -> tuple[Message, tuple[Span, ...]]:
        return Message(Role.ASSISTANT, tool_calls=(ToolCall("c", "look", "{}"),)), ()


async def test_a_tool_is_called_only_for_what_the_user_asked() -> None:
    """On requests that it cannot answer a small model calls a tool: it did so after "Many thanks." in the end."""
    engine = Base(invented=("how are things", "what is the time"))
    found = replace(others(engine, a_turn("mine", "What is 3 + 3?"), most=3, answer="No, plainly"), renderer=Calling())
    shown = await found.shown(a_turn("t"), PLAIN, ())
    assert [text(one.prompt).rpartition("\n")[2] for one in shown] == ["What is 3 + 3?", "No, plainly"]


async def test_shipped_ones_are_few_since_they_say_little_of_what_is_asked_here() -> None:
    mine = [a_turn(f"earlier {number}", f"What is {number} + 3?") for number in range(3)]
    found = await asked(others(Base(), *mine, most=16), a_turn("t"))
    assert found == [*(turn.messages[-1].text for turn in mine), *shipped()[: MOST_SHIPPED - 3]]


def test_the_shipped_requests_are_different_ones_and_enough() -> None:
    assert len(set(shipped())) == len(shipped()) >= MOST_SHIPPED


@pytest.mark.parametrize(
    ("again", "said", "reads"),
    [
        ("plain", "plain", f"What is 3 + 3?\n\n{LABEL} {PLAIN}"),  # the same with and without
        ("plan", "plan", f"What is 3 + 3?\nok\n{PLAIN}"),  # another way in its middle
        ("sure: plan", None, ""),  # and no reply to the request alone opens so
    ],
)
async def test_a_reply_that_contradicts_what_is_said_without_the_hint_is_given_again_with_both_in_the_prompt(
    again: str, said: str | None, reads: str
) -> None:
    engine = Base(again=again, unlikely=-6.0)
    found = await others(engine, a_turn("earlier", "What is 3 + 3?"), most=1).shown(a_turn("t"), PLAIN, ())
    own = [one for one in found if one.turn == "earlier" and text(one.prompt) == "What is 3 + 3?"]
    assert [(text(one.reply.tokens[:-1]), text(one.hint.tokens)) for one in own] == ([(said, reads)] if said else [])
    assert all(one.hint.text == PLAIN for one in own)


@pytest.mark.parametrize(("again", "kept", "is_anchored"), [("plain", ["plain"], False), ("plan", ["plan"], True)])
async def test_replies_to_a_corrected_turn_that_say_something_else_are_left_out(
    again: str, kept: list[str], is_anchored: bool
) -> None:
    turn = a_turn("t", reply="four")
    hint = HintPrompt(PLAIN, ids_of(f"What is 2 + 2?\n\n{LABEL} {PLAIN}"))
    shown = SampledReply((*ids_of("plain"), END), (-0.1,) * 6, BASE)
    reading, left = await others(Base(again=again, unlikely=-6.0)).content.consistent(turn, hint, [shown])
    assert [text(one.tokens[:-1]) for one in left] == kept
    assert text(reading.tokens) == (f"What is 2 + 2?\nfour\n{PLAIN}" if is_anchored else text(hint.tokens))


async def test_a_reply_that_calls_a_tool_is_not_compared() -> None:
    turn = a_turn("t", reply=Message(Role.ASSISTANT, tool_calls=(ToolCall("c", "add", "{}"),)))
    hint, shown = HintPrompt(PLAIN, ids_of("x")), SampledReply((*ids_of("plain"), END), (-0.1,) * 6, BASE)
    assert await others(Base(again="plan", unlikely=-6.0)).content.consistent(turn, hint, [shown]) == (hint, (shown,))


@pytest.mark.parametrize(("again", "told"), [("plain", None), ("plan", "in 6 of 6 replies")])
async def test_a_hint_that_changes_what_is_said_is_reported_until_the_memory_is_let_go(
    again: str, told: str | None
) -> None:
    turn, asked = a_turn("t", reply="four"), others(Base(again=again, unlikely=-6.0))
    hint = HintPrompt(PLAIN, ids_of(f"What is 2 + 2?\n\n{LABEL} {PLAIN}"))
    shown = SampledReply((*ids_of("plain"), END), (-0.1,) * 6, BASE)
    await asked.content.consistent(turn, hint, [shown] * 5)
    assert not [*asked.contradictions.costly()]  # too few to say so
    await asked.content.consistent(turn, hint, [shown])
    found = [one.said for one in teach_findings(StoreFacts({}), [*asked.contradictions.costly()])]
    assert bool(found) == (told is not None) and all(PLAIN in each and str(told) in each for each in found)
    asked.let_go()
    assert not [*asked.contradictions.costly()]


@dataclass
class Ends:
    """Surely says any reply, and ends it as likely as the prompt's first token says, in per cent."""

    async def score(self, prompt: Prompt, *, start: int, version: PolicyVersion, top_k: int = 0) -> Scores:
        return Scores(start, (*(0.0 for _ in prompt.tokens[start:-1]), math.log(prompt.tokens[0] / 100)))


@pytest.mark.parametrize(
    ("given_the_hint", "after_the_reply", "is_contrary"),
    [
        (99, 1, False),  # the hint is about other requests; said right after this reply it seems to mean it
        (80, 1, True),  # the hint is followed sometimes, and here it was not
        (99, 80, False),
    ],
)
async def test_a_sure_end_of_a_reply_that_a_hint_does_not_concern_contradicts_nothing(
    given_the_hint: int, after_the_reply: int, is_contrary: bool
) -> None:
    check = replace(others(Base()).content, engine=Ends())  # type: ignore[arg-type]
    said = (*ids_of("plain"), END)
    hinted, anchored = Prompt((given_the_hint,)), Prompt((after_the_reply,))
    assert await check.contradicts(hinted, anchored, said) == is_contrary
