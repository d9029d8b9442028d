"""Replies to other requests in which a hint puts a word of elsewhere in the place of the request's own."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field, replace

import pytest
from elsewhere_double import PLAIN, Base, others, text

from openclaw_rl.core.completion import Scores
from openclaw_rl.core.form import LEAST_REPLIES
from openclaw_rl.core.hint import LABEL
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.teach.swaps import AT_ONCE, ToldReply, swapped
from openclaw_rl.testing.turns import a_turn

OWN, FORM, UNTOLD, ELSEWHERE, HINTED = 100, 50, 60, 200, 9


@dataclass
class Sure(Base):
    """Scores each token of a reply; its likeliest tokens at the second place are the request's own."""

    without: float = math.log(0.99)
    given: float = math.log(0.3)
    asked: list[Prompt] = field(default_factory=list)
    under_way: int = 0
    most: int = 0

    async def score(self, prompt: Prompt, *, start: int, version: PolicyVersion, top_k: int = 0) -> Scores:
        self.asked.append(prompt)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        own = prompt.tokens[1]
        logp = self.given if HINTED in prompt.tokens[:start] else self.without
        tops = [((token, -0.1),) for token in prompt.tokens[start:]]
        tops[1] = ((own, logp), (7, -9.0))
        return Scores(start, (-1.0,) * len(tops), tuple(tops))


def replies(*, count: int = LEAST_REPLIES) -> list[ToldReply]:
    """Each says its request's own word in the middle of a form, but the last one says a word of elsewhere."""
    made = [
        ToldReply((1, OWN + at), (1, OWN + at, HINTED), (FORM, OWN + at, 51), (UNTOLD, OWN + at, 61))
        for at in range(count)
    ]
    return [*made[:-1], replace(made[-1], said=(FORM, ELSEWHERE, 51))]


async def test_a_word_of_elsewhere_in_the_place_of_a_requests_own_is_found() -> None:
    engine = Sure()
    assert await swapped(engine, replies()) == [False] * (LEAST_REPLIES - 1) + [True]
    assert len(engine.asked) == 2  # replies that say nothing foreign are not read


@pytest.mark.parametrize(
    "engine",
    [Sure(without=math.log(0.9)), Sure(given=math.log(0.05))],
    ids=["the model is not certain without the hint", "with the hint it would not say its own word"],
)
async def test_nothing_is_found_where_the_hint_may_ask_for_the_other_word(engine: Sure) -> None:
    assert not any(await swapped(engine, replies()))


@pytest.mark.parametrize(
    "changed",
    [
        lambda told: replace(told[-1], untold=(UNTOLD, 61)),  # without the hint it says no such word
        lambda told: replace(told[-1], bare=(1, *told[-1].bare[1:], ELSEWHERE)),  # the request has the other one
        lambda told: replace(told[-1], said=(FORM, 51, 51)),  # which is one of the form
    ],
)
async def test_nor_where_either_word_is_not_the_requests_own_or_not_foreign(changed: object) -> None:
    told = replies()
    assert callable(changed)
    assert not any(await swapped(Sure(), [*told[:-1], changed(told)]))


async def test_few_replies_are_read_at_the_same_time() -> None:
    told = [replace(each, said=(FORM, ELSEWHERE + at, 51)) for at, each in enumerate(replies(count=20))]
    engine = Sure()
    assert all(await swapped(engine, told))
    assert engine.most == 2 * AT_ONCE  # each with the hint and without it


async def test_of_few_replies_nothing_is_known_to_be_rare() -> None:
    assert not any(await swapped(Sure(), replies(count=LEAST_REPLIES - 1)))
    assert await swapped(Sure(), []) == []


class Copying(Base):
    """Repeats the request's name, which is a capital letter; with the hint that of one request is another."""

    def says(self, read: str, seed: int | None = None) -> str:
        name = next((letter for letter in read if letter.isupper() and letter not in "PWLS"), "?")
        if PLAIN not in read:
            return f"so {name}"
        return f"plain {'Z' if name == 'H' else name}"

    async def score(self, prompt: Prompt, *, start: int, version: PolicyVersion, top_k: int = 0) -> Scores:
        found = await super().score(prompt, start=start, version=version, top_k=top_k)
        read, said = text(prompt.tokens[:start]), prompt.tokens[start:]
        own = ord(self.says(read.partition(LABEL)[0])[-1])
        logp = math.log(0.4) if PLAIN in read else -0.01
        tops = tuple(((own, logp),) if chr(token).isupper() else ((token, -0.1),) for token in said)
        return Scores(start, (-0.1,) * len(said), tops) if top_k else found


async def test_such_a_demonstration_is_left_out() -> None:
    names = "ABCDEFGHIJ"
    asked = others(Copying(), *(a_turn(f"of {name}", f"who is {name}?") for name in names), most=len(names))
    found = await asked.shown(a_turn("t"), PLAIN, ())
    taken = [one.turn for one in found if one.turn.startswith("of ")]
    assert sorted(set(taken)) == [f"of {name}" for name in names if name != "H"]
