"""Where a hint gives content besides form, more requests of that kind are learned from, and elsewhere none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import pytest
from elsewhere_double import END, SHORT, Base, Bytes, ids_of, others, text

from openclaw_rl.core.completion import SampledToken, Scores, Span
from openclaw_rl.core.hint import LABEL
from openclaw_rl.core.message import Message, Role, message
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sample import HintPrompt, OtherRequestReply, SampledReply
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.errors import BeyondContextError
from openclaw_rl.teach.leaning import DRAWN_TOKENS, MOST_DRAWN, Leaning, are_needed, drawn_at_most
from openclaw_rl.testing.turns import a_turn

SAID = "Ann 3 <Bob 5. Bob."
REQUEST = "Ann is 3 and Bob is 5."


class Whole(Bytes):
    """Reads any part of a reply, too."""

    def decode(self, tokens: Sequence[int]) -> tuple[Message, tuple[Span, ...]]:
        return message(Role.ASSISTANT, text([token for token in tokens if token != END])), ()


@dataclass
class Untold(Base):
    """Without the hint these places of a reply have so many nats, all others -0.1."""

    at: tuple[tuple[int, float], ...] = ()

    async def score(self, prompt: Prompt, *, start: int, version: PolicyVersion, top_k: int = 0) -> Scores:
        held = dict(self.at)
        return Scores(start, tuple(held.get(place, -0.1) for place in range(len(prompt) - start)), ())


async def leans(
    *at: tuple[int, float], told: float = -0.05, hint: str = SHORT, requests: Sequence[str] = (REQUEST,)
) -> bool:
    said = (*ids_of(SAID), END)
    reply = SampledReply(said, (told,) * len(said), BASE)
    made = OtherRequestReply(ids_of(REQUEST), HintPrompt(hint, ids_of(f"{REQUEST}\n{hint}")), reply)
    many = (*requests, *(f"Which is request {number}?" for number in range(9)))
    return await Leaning.of(Untold(at=at), Whole(), many).leans(REQUEST, made)


BOB, LAST_BOB, SIGN = SAID.index("Bob"), SAID.rindex("Bob"), SAID.index("<")


async def test_a_reply_leans_on_the_hint_where_it_would_lose_a_word_of_the_request() -> None:
    assert await leans((BOB, -3.0))
    assert not await leans()
    assert not await leans((BOB, -0.8))  # it is still about as likely


@pytest.mark.parametrize("place", [0, SIGN, BOB + 1, LAST_BOB])
async def test_other_forms_begin_otherwise_and_sign_otherwise(place: int) -> None:
    """The reply's and a sentence's beginning, a sign, and the rest of a word."""
    assert not await leans((place, -3.0))


async def test_a_reply_does_not_lean_where_it_left_the_track_before_or_is_unsure_with_the_hint() -> None:
    assert not await leans((BOB - 1, -3.0), (BOB, -3.0))
    assert not await leans((BOB, -3.0), told=-0.5)


async def test_words_of_the_hint_and_of_many_requests_are_no_content() -> None:
    assert not await leans((BOB, -3.0), hint="Call everybody Bob.")
    assert not await leans((BOB, -3.0), requests=(REQUEST, *("Bob is late.",) * 4))


def test_a_few_that_lean_are_chance() -> None:
    assert not are_needed([True] * 2 + [False] * 8)
    assert are_needed([True] * 3 + [False] * 32)
    assert not are_needed([True] * 3 + [False] * 40)


def test_fewer_are_drawn_where_replies_are_long() -> None:
    def replies(length: int) -> list[OtherRequestReply]:
        return [OtherRequestReply((1,), HintPrompt("", (1,)), SampledReply((1,) * length, (0.0,) * length, BASE))]

    assert drawn_at_most(replies(10)) == MOST_DRAWN
    assert drawn_at_most(replies(200)) == DRAWN_TOKENS // 200


@dataclass
class Copies(Base):
    """Told to be short it repeats the second and the last word of a request; without the hint it loses the last one
    if that is in `lost`.

    There is no room for requests that end with `too_long`.
    """

    lost: tuple[str, ...] = ()
    too_long: str = "?"

    async def generate(self, prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> AsyncIterator[SampledToken]:
        if f"{self.too_long}?" in text(prompt.tokens):
            raise BeyondContextError("too many tokens")
        async for item in super().generate(prompt, sampling, version):
            yield item

    def says(self, read: str, seed: int | None = None) -> str:
        words = read.partition("?")[0].split()
        return f"{words[1]} to {words[-1]}" if SHORT in read else f"I say {words[-1]} so"

    async def score(self, prompt: Prompt, *, start: int, version: PolicyVersion, top_k: int = 0) -> Scores:
        said = text([token for token in prompt.tokens[start:] if token != END])
        logp = [-0.05] * (len(prompt) - start)
        if LABEL not in text(prompt.tokens[:start]) and said.rpartition(" ")[2] in self.lost:
            logp[said.rindex(" ") + 1] = -3.0
        top = [((token, nats),) for token, nats in zip(prompt.tokens[start:], logp, strict=True)]
        return Scores(start, tuple(logp), tuple(top))


NAMES = [f"n{chr(97 + number // 26)}{chr(97 + number % 26)}" for number in range(200)]


async def lessons(lost: Sequence[str], *, too_long: str = "?") -> tuple[list[str], list[str]]:
    """The last words of the requests that are learned from, and of those that are checks."""
    made_up = tuple(f"has z{number} met {name}?" for number, name in enumerate(NAMES))
    found = others(Copies(invented=made_up, lost=tuple(lost), too_long=too_long), most=4, checks=4)
    found.renderer = Whole()
    shown = await found.shown(a_turn("t"), SHORT, [])
    asked = [
        (text(one.prompt).partition("?")[0].split()[-1], one.is_check) for one in shown if b"met" in bytes(one.prompt)
    ]
    return [name for name, is_check in asked if not is_check], [name for name, is_check in asked if is_check]


async def test_more_requests_are_made_up_where_the_hint_gives_content_and_the_checks_are_learned_from() -> None:
    plain, checks = await lessons([])
    assert len(checks) == 4
    some = [name for name in NAMES if name not in {*plain, *checks}][:20]
    taught, others = await lessons([*some, *checks[:3]])
    assert {*plain, *some, *checks} == {*taught}  # the checks of both kinds: else one kind would outweigh all others
    assert len(others) == 4 and not {*others} & {*taught}  # checks are made of requests at which it gives form alone
    assert (await lessons(some)) == (plain, checks)  # none of those that were asked at first leans: nothing is known
    taught, _ = await lessons([*some, *checks], too_long=some[0])
    assert {*some, *checks} - {*taught} == {some[0]}
