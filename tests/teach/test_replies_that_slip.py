"""Replies in which a hint made the model unsure of what it knows, and which say something else there."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
from elsewhere_double import END, PLAIN, Base, Bytes, ids_of, others, text

from openclaw_rl.core.completion import Completion, Finish, Scores
from openclaw_rl.core.hint import LABEL
from openclaw_rl.core.message import Message, Role, message
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sample import HintPrompt, Sample, SampledReply
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.errors import RequestError
from openclaw_rl.teach.redone import Hindsight
from openclaw_rl.teach.slips import EARLIER, Sources, slips, sources
from openclaw_rl.testing.turns import a_turn


@dataclass
class Names(Base):
    """Repeats a request's name, a capital letter; told the hint it says Z in place of each of the `lost` ones.

    It is as certain of the name as `certain` and `possible` say (log-probabilities, without and with the hint), and
    finds Z `unlikely`. Given the hint after its own reply it says the name again if it `mends`, or Z for `certain`.
    """

    lost: str = "H"
    certain: float = math.log(0.97)
    possible: float = math.log(0.3)
    unlikely: float = -6.0
    mends: bool = False

    def says(self, read: str, seed: int | None = None) -> str:
        name = next((letter for letter in read if letter.isupper() and letter not in "WP"), "?")
        if PLAIN not in read:
            return f"so {name}"
        is_lost = name in self.lost and not (self.mends and LABEL not in read)
        return f"plain {'Z' if is_lost else name}"

    async def score(self, prompt: Prompt, *, start: int, version: PolicyVersion, top_k: int = 0) -> Scores:
        found = await super().score(prompt, start=start, version=version, top_k=top_k)
        if not top_k:
            return found
        read, said = text(prompt.tokens[:start]), prompt.tokens[start:]
        name = next((letter for letter in read if letter.isupper() and letter not in "WP"), "?")
        insists = PLAIN in read and LABEL not in read and not self.mends
        top = ((ord(name), -9.0 if insists else self.possible if PLAIN in read else self.certain),)
        tops = tuple(top if chr(token).isupper() else ((token, -0.1),) for token in said)
        nats = tuple(self.unlikely if token == ord("Z") else -0.1 for token in said)
        return Scores(start, nats, tops)


@dataclass
class Late(Base):
    """As certain of a name as `early` after a request, and as `far` further on in a conversation, of several lines."""

    early: float = math.log(0.97)
    far: float = math.log(0.3)

    async def score(self, prompt: Prompt, *, start: int, version: PolicyVersion, top_k: int = 0) -> Scores:
        said, is_late = prompt.tokens[start:], "again" in text(prompt.tokens[:start])
        nats = tuple((self.far if is_late else self.early) if chr(token).isupper() else -0.01 for token in said)
        return Scores(start, nats, tuple(((token, each),) for token, each in zip(said, nats, strict=True)))


LATE = Prompt(ids_of(f"who is H?\nok\nagain, please\n\n{LABEL} {PLAIN}"))
BARE, HINTED = Prompt(ids_of("who is H?")), Prompt(ids_of(f"who is H?\n\n{LABEL} {PLAIN}"))
UNTOLD = Sources((BARE,))
WRONG = (*ids_of("plain Z"), END)


async def test_something_else_where_the_model_is_certain_without_the_hint_is_found() -> None:
    assert await slips(Names(), UNTOLD, HINTED, WRONG) == BARE
    assert not await slips(Names(), UNTOLD, HINTED, (*ids_of("plain H"), END))
    assert not await slips(Names(), Sources(()), HINTED, WRONG)


@pytest.mark.parametrize(
    "engine",
    [Names(certain=math.log(0.9)), Names(possible=math.log(0.05)), Names(unlikely=-2.0)],
    ids=["it is not certain without the hint", "the hint rules it out", "what was said is possible, too"],
)
async def test_nothing_is_found_where_the_hint_may_ask_for_what_was_said(engine: Names) -> None:
    assert not await slips(engine, UNTOLD, HINTED, WRONG)


async def test_neither_the_beginning_of_a_reply_nor_its_end_is_compared() -> None:
    assert not await slips(Names(), UNTOLD, HINTED, (*ids_of("Z"), END))
    assert not await slips(Names(), UNTOLD, HINTED, ids_of("plain Z"))  # ends with it
    assert not await slips(Names(), UNTOLD, HINTED, (*ids_of("plain Z so "), ord("H")))  # which would be the end


async def test_content_is_looked_for_in_earlier_requests_of_a_conversation_too() -> None:
    talk = [item for at in range(6) for item in (message(Role.USER, f"q{at}"), message(Role.ASSISTANT, "a"))][:-1]
    found = await sources(Bytes(), a_turn("t"), talk, [PLAIN])
    untold, told = ([text(prompt.tokens) for prompt in each] for each in (found.untold, found.told))
    assert [each.split("\n")[-1] for each in untold] == ["q5", "q2", "q3", "q4"] and len(untold) == 1 + EARLIER
    assert told == [f"{each}\n\n{LABEL} {PLAIN}" for each in untold[1:]]

    class Refusing(Bytes):
        def prompt(self, messages: list[Message], *others: object, **options: object) -> Prompt:  # type: ignore[override]
            if len(messages) == 1:
                raise RequestError("not alone")
            return super().prompt(messages, (), None)

    alone = await sources(Refusing(), a_turn("t"), talk[:3], [PLAIN])  # type: ignore[arg-type]
    assert (len(alone.untold), alone.told) == (1, ())


@pytest.mark.parametrize(("late", "slipped"), [(0.3, True), (0.6, False), (0.05, False)])
async def test_a_reply_late_in_a_conversation_is_found_if_the_model_is_unsure_there_alone(
    late: float, slipped: bool
) -> None:
    """Learned from, it shows how to be unsure, even if it happens to be right."""
    right = (*ids_of("plain H"), END)
    engine = Late(far=math.log(late))
    assert (await slips(engine, Sources((), (HINTED,)), LATE, right) == HINTED) is slipped
    assert not await slips(engine, Sources((HINTED,)), LATE, right)
    assert not await slips(Late(far=math.log(late), early=math.log(0.9)), Sources((), (HINTED,)), LATE, right)


class Recalling(Late):
    """Says the name right after the request, and another one late in the conversation."""

    def says(self, read: str, seed: int | None = None) -> str:
        return "ok" if PLAIN not in read else "plain Z" if "again" in read else "plain H"


@pytest.mark.parametrize("late", [0.3, 0.6])
async def test_in_the_place_of_one_that_shows_how_to_be_unsure_comes_what_is_said_right_after_the_request(
    late: float,
) -> None:
    found = await others(Recalling(far=math.log(late)), most=1, answer="again!").shown(a_turn("t"), PLAIN, ())
    [one] = [each for each in found if text(each.prompt).endswith("again!")]
    told = f"What is 2 + 2?\n\n{LABEL} {PLAIN}"
    assert text(one.reply.tokens[:-1]) == ("plain H" if late < 0.5 else "plain Z")
    assert (text(one.hint.tokens) == told) is (late < 0.5)


def asked(names: str) -> list[Turn]:
    return [a_turn(f"of {name}", f"who is {name}?") for name in names]


async def shown(engine: Names, names: str = "ABCDEFGH") -> dict[str, str]:
    """The replies to other requests that are learned from, by the name that is asked for."""
    found = await others(engine, *asked(names), most=len(names)).shown(a_turn("t"), PLAIN, ())
    return {one.turn[-1]: text(one.reply.tokens[:-1]) for one in found if one.turn.startswith("of ")}


async def test_such_a_demonstration_is_replaced_by_one_with_its_own_reply_before_its_eyes() -> None:
    assert (await shown(Names(mends=True)))["H"] == "plain H"


async def test_or_left_out_if_that_says_the_same() -> None:
    assert sorted(await shown(Names())) == list("ABCDEFG")


async def test_if_most_demonstrations_are_such_the_hint_asks_for_it() -> None:
    found = await shown(Names(lost="ABCDEFGH"))
    assert sorted(found) == list("ABCDEFGH") and {*found.values()} == {"plain Z"}


@pytest.mark.parametrize(("mends", "kept"), [(False, []), (True, ["plain H"])])
async def test_replies_to_the_corrected_request_that_slip_are_left_out_or_replaced(
    mends: bool, kept: list[str]
) -> None:
    turn = a_turn("t", "who is H?", reply="so H")
    hint = HintPrompt(PLAIN, HINTED.tokens)
    wrong = SampledReply(WRONG, (-0.1,) * len(WRONG), BASE)
    _, left = await others(Names(mends=mends)).content.consistent(turn, hint, [wrong])
    assert [text(one.tokens[:-1]) for one in left] == kept


@pytest.mark.parametrize(("lost", "is_learned"), [("H", False), ("", True)])
async def test_an_accepted_reply_that_slips_is_not_learned_as_an_answer_to_the_request(
    lost: str, is_learned: bool
) -> None:
    said = (*ids_of("plain Z" if lost else "plain H"), END)
    corrected = replace(a_turn("first", "who is H?", reply="so H"), prompt=BARE)
    talk = (*corrected.messages, corrected.reply, message(Role.USER, PLAIN))
    completion = Completion(said, (-0.1,) * len(said), (-0.1,) * len(said), BASE, Finish.STOP)
    accepted = replace(a_turn("good"), messages=talk, prompt=Bytes().prompt(talk, (), None), completion=completion)
    sample = Sample("good", "s", "u", accepted.prompt.tokens, said, (-0.1,) * len(said), (True,) * len(said), BASE)
    found = await Hindsight(Names(lost=lost), Bytes()).redone(accepted, corrected, BARE, [PLAIN], sample)  # type: ignore[arg-type]
    assert (found is not None) is is_learned
