"""Requests like a corrected one: what is learned and what is held there if the hint changes the content of replies."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

import pytest
from elsewhere_double import END, OPENING, PLAIN, Base, Sums, ids_of, others, text

from openclaw_rl.core.completion import Scores
from openclaw_rl.core.hint import LABEL
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sample import HintPrompt, OtherRequestReply, SampledReply
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.teach.near import NUMBERED, NearRequests
from openclaw_rl.testing.turns import a_turn

CONTRARY = {"again": "plan", "unlikely": -6.0}


async def near(engine: Base, asked: str = "What is 2 + 2?", *, most: int = 3) -> tuple[OtherRequestReply, ...]:
    return (await NearRequests(others(engine, most=most)).found(a_turn("t", asked), PLAIN, (), ())).replies


async def test_a_hint_that_changes_no_content_is_not_taught_there() -> None:
    assert await near(Base(again="plain", unlikely=-6.0)) == ()


@dataclass
class Seldom(Base):
    """Contradicts itself on the first `contrary` requests that it is asked with a hint."""

    contrary: int = 1
    asked: list[str] = field(default_factory=list)

    def says(self, read: str, seed: int | None = None) -> str:
        if LABEL not in read and read.endswith(f"\n{PLAIN}"):
            request = read.partition("\n")[0]
            if request not in self.asked:
                self.asked.append(request)
            return "plan" if self.asked.index(request) < self.contrary else "plain"
        return super().says(read, seed)


@pytest.mark.parametrize(("contrary", "is_taught"), [(1, False), (2, True)])
async def test_one_contrary_reply_of_eight_may_be_chance_and_two_are_not(contrary: int, is_taught: bool) -> None:
    found = await near(Seldom(unlikely=-6.0, contrary=contrary))
    said = [text(one.reply.tokens[:-1]) for one in found[:NUMBERED]]
    assert sorted(said) == (["plain"] * (NUMBERED - contrary) + ["plan"] * contrary if is_taught else [])


@dataclass
class Small(Seldom):
    """Its users ask about numbers up to `largest`: a larger one in a user's message costs it 7 nats."""

    invented: tuple[str, ...] = ("What is 1 + 1?",)
    largest: int = 4

    async def score(self, prompt: Prompt, *, start: int, version: PolicyVersion, top_k: int = 0) -> Scores:
        found = await super().score(prompt, start=start, version=version, top_k=top_k)
        if prompt.tokens[:start] != OPENING:
            return found
        large = sum(int(number) > self.largest for number in re.findall(r"\d+", text(prompt.tokens[start:])))
        return replace(found, logp=(found.logp[0] - 7.0 * large, *found.logp[1:]))


@pytest.mark.parametrize(("largest", "are_asked"), [(4, True), (2, False)])
async def test_numbers_that_its_users_do_not_ask_about_are_not_tried(largest: int, are_asked: bool) -> None:
    """On those the model guesses, and a guess contradicts another. With few others nothing can be said."""
    engine = Small(unlikely=-6.0, contrary=NUMBERED, largest=largest)
    assert bool(await near(engine)) == are_asked
    numbers = [int(number) for request in engine.asked for number in re.findall(r"\d+", request)]
    assert bool(numbers) == are_asked
    assert max(numbers, default=0) <= largest


@pytest.mark.parametrize(("contrary", "is_taught"), [(1, False), (2, True)])
async def test_one_contrary_reply_of_five_may_be_chance_too(contrary: int, is_taught: bool) -> None:
    engine = Small(unlikely=-6.0, contrary=contrary, largest=6)
    assert bool(await near(engine, "What is 2 of these?")) == is_taught
    assert len(engine.asked) == 5


async def test_a_contrary_reply_is_replaced_and_requests_with_less_keep_what_is_said_without_the_hint() -> None:
    found = await near(Base(**CONTRARY))  # type: ignore[arg-type]
    taught, held = found[:NUMBERED], found[NUMBERED:]
    assert {text(one.reply.tokens[:-1]) for one in taught} == {"plan"}
    assert all(text(one.hint.tokens) == f"{text(one.prompt)}\nok\n{PLAIN}" for one in taught)
    assert held and all(one.hint == HintPrompt(PLAIN, one.prompt) for one in held)
    assert {one.reply.tokens for one in held} == {(*ids_of("ok"), END)}
    assert all(len(text(one.prompt)) < len("What is 2 + 2?") for one in held)


class Unsure(Base):
    """Says "no" to a request without hints whose seed is late, and another thing when told the hint after that."""

    def says(self, read: str, seed: int | None = None) -> str:
        if LABEL not in read and PLAIN not in read and seed is not None and seed >= 1_000:
            return "no"
        return "play" if read.endswith(f"no\n{PLAIN}") else super().says(read, seed)


async def test_nothing_is_learned_where_replies_without_the_hint_disagree() -> None:
    assert await near(Unsure(**CONTRARY)) == ()  # type: ignore[arg-type]


@dataclass
class Guessing(Seldom):
    """Without a hint it replies in two ways to `guessed` of the requests that it was asked with one, but the first."""

    guessed: int = 0
    known: int = 2

    def says(self, read: str, seed: int | None = None) -> str:
        if read in self.asked[self.known : self.known + self.guessed] and seed is not None and seed >= 1_000:
            return f"no {self.asked.index(read)}"
        return super().says(read, seed)


@pytest.mark.parametrize(("guessed", "is_taught"), [(0, True), (4, True), (5, False)])
async def test_nothing_is_taught_there_if_a_result_is_seldom_known(guessed: int, is_taught: bool) -> None:
    assert bool(await near(Guessing(unlikely=-6.0, contrary=2, guessed=guessed))) is is_taught


@pytest.mark.parametrize(("contrary", "is_taught"), [(2, False), (3, True)])
async def test_a_contrary_reply_to_a_request_whose_result_is_not_known_shows_nothing(
    contrary: int, is_taught: bool
) -> None:
    assert bool(await near(Guessing(unlikely=-6.0, contrary=contrary, guessed=1, known=0))) is is_taught


@pytest.mark.parametrize(("asked", "most"), [("Why does bread rise?", 3), ("What is 2 + 2?", 0)])
async def test_nor_without_numbers_nor_if_no_other_requests_are_wanted(asked: str, most: int) -> None:
    assert await near(Base(**CONTRARY), asked, most=most) == ()  # type: ignore[arg-type]


@pytest.mark.parametrize("is_whole", [True, False])
async def test_a_reply_without_the_result_is_not_learned(is_whole: bool) -> None:
    asked = "What is 21 + 35?"
    found = await near(Sums(unlikely=-6.0, is_whole=is_whole), asked)
    assert bool(found) == is_whole
    for one in found[: NUMBERED if is_whole else 0]:
        added = sum(int(number) for number in re.findall(r"\d+", text(one.prompt)))
        assert text(one.reply.tokens[:-1]) == f"plan {added}"


async def test_replies_to_the_corrected_request_without_its_result_are_left_out() -> None:
    shown = tuple(SampledReply((*ids_of(said), END), (-0.1,) * (len(said) + 1), BASE) for said in ("plan 56", "plan"))
    turn = a_turn("t", "What is 21 + 35?")
    asking = NearRequests(others(Sums(unlikely=-6.0)))
    assert (await asking.found(turn, PLAIN, (), shown)).shown == shown[:1]


@pytest.mark.parametrize("is_whole", [True, False])
async def test_a_hint_with_which_most_results_are_lost_confuses_if_none_can_be_drawn_in_their_place(
    is_whole: bool,
) -> None:
    asked = others(Sums(is_whole=is_whole))  # no token is unlikely: only the sum is missing
    found = await NearRequests(asked).found(a_turn("t", "What is 21 + 35?"), PLAIN, (), ())
    assert (asked.contradictions.confuses(PLAIN), bool(found.replies)) == (not is_whole, is_whole)


async def test_a_hint_that_asks_for_no_number_does_not_confuse() -> None:
    asked = others(Sums(is_whole=False, is_sure=True))
    found = await NearRequests(asked).found(a_turn("t", "What is 21 + 35?"), PLAIN, (), ())
    assert not asked.contradictions.confuses(PLAIN) and found.replies == ()


@pytest.mark.parametrize("lost", [4, 5])
async def test_a_few_lost_numbers_change_nothing(lost: int) -> None:
    """Requests with other numbers may be ones that nobody asks, on which the model does not know what it says."""
    asked = others(Sums(lost=lost, is_whole=False))
    found = await NearRequests(asked).found(a_turn("t", "What is 21 + 35?"), PLAIN, (), ())
    assert (asked.contradictions.confuses(PLAIN), found.replies) == (lost > 4, ())
