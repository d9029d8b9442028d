"""Replies with a hint that lack the number of those without it, and models that waver between two replies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from elsewhere_double import END, PLAIN, Base, Sums, ids_of, others, text

from openclaw_rl.core.completion import Scores
from openclaw_rl.core.hint import LABEL
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sample import HintPrompt, SampledReply
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.errors import EngineError, RequestError
from openclaw_rl.teach.contradictions import LEAST_CHECKED
from openclaw_rl.teach.elsewhere import DRAW_SEEDS
from openclaw_rl.testing.turns import a_turn


@dataclass
class Guessing(Sums):
    """Adds wrongly now and then: with late seeds it says something else without the hint."""

    def says(self, read: str, seed: int | None = None) -> str:
        said = super().says(read, seed)
        return f"ok {seed}" if PLAIN not in read and seed is not None and seed >= DRAW_SEEDS else said


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (Sums(lost=0), "plain 34"),
        (Sums(), "plan 34"),  # another in its place, drawn after the reply that states it
        (Sums(is_whole=False), None),  # that one does not state it either
        (Guessing(), "plain"),  # a model that knows no sum loses none
        (Sums(is_sure=True), "plain"),  # the hint asks for that
    ],
)
async def test_a_reply_without_the_number_that_is_stated_without_the_hint_is_replaced_or_left_out(
    engine: Sums, said: str | None
) -> None:
    asked = others(engine, a_turn("earlier", "What is 13 + 21?"), most=1)
    found = await asked.shown(a_turn("t"), PLAIN, ())
    assert [text(one.reply.tokens[:-1]) for one in found if one.turn == "earlier"][:1] == ([said] if said else [])


@pytest.mark.parametrize(("engine", "confuses"), [(Sums(), False), (Sums(is_whole=False), True)])
async def test_a_hint_for_which_many_requests_are_left_out_confuses(engine: Sums, confuses: bool) -> None:
    earlier = [a_turn(f"e{at}", f"What is 13 + {21 + at}?") for at in range(LEAST_CHECKED)]
    asked = others(engine, *earlier, most=LEAST_CHECKED)
    await asked.shown(a_turn("t"), PLAIN, ())
    assert asked.contradictions.confuses(PLAIN) is confuses
    asked.let_go()
    assert not asked.contradictions.confuses(PLAIN)


class Stating(Sums):
    """Says after the hint what any model says, and without it what was corrected."""

    def says(self, read: str, seed: int | None = None) -> str:
        return Base.says(self, read, seed) if PLAIN in read else "that is 4"


@pytest.mark.parametrize(("told", "kept"), [("plain 4", ["plain 4"]), ("plain", ["plan 4"])])
async def test_a_reply_to_the_corrected_turn_without_its_number_is_left_out(told: str, kept: list[str]) -> None:
    turn = a_turn("t", "What is two and 2?", reply="that is 4")
    hint = HintPrompt(PLAIN, ids_of(f"What is two and 2?\n\n{LABEL} {PLAIN}"))
    shown = SampledReply((*ids_of(told), END), (-0.1,) * (len(told) + 1), BASE)
    _, left = await others(Stating(again="plan 4")).content.consistent(turn, hint, [shown])
    assert [text(one.tokens[:-1]) for one in left] == kept


@dataclass
class Tops(Base):
    """The likeliest tokens at the third place of a reply: without the hint, and with it."""

    without: Mapping[int, float] = field(default_factory=dict)
    given: Mapping[int, float] = field(default_factory=dict)

    async def score(self, prompt: Prompt, *, start: int, version: PolicyVersion, top_k: int = 0) -> Scores:
        tops = self.given if LABEL in text(prompt.tokens[:start]) else self.without
        size = len(prompt) - start
        return Scores(start, (tops.get(7, -9.0),) * size, (((7, 0.0),),) * 2 + (tuple(tops.items()),) * (size - 2))


@pytest.mark.parametrize(
    ("without", "given", "wavers"),
    [
        ({8: -0.1, 7: -4.0}, {7: -0.1, 8: -3.0}, True),
        ({8: -0.1, 7: -2.0}, {7: -0.1, 8: -3.0}, False),  # what was said is likely without the hint, too
        ({8: -0.7, 7: -4.0}, {7: -0.1, 8: -3.0}, False),  # without it the model is not sure
        ({8: -0.1, 7: -4.0}, {7: -0.1, 8: -5.0}, False),  # with it the model is sure
        ({8: -0.1, 7: -4.0}, {7: -0.1}, False),
        ({END: -0.1, 7: -4.0}, {7: -0.1, END: -3.0}, False),  # it only says more
    ],
)
async def test_a_model_wavers_where_it_is_sure_of_something_else_without_the_hint(
    without: Mapping[int, float], given: Mapping[int, float], wavers: bool
) -> None:
    check = others(Tops(without=without, given=given)).content
    said = SampledReply((7, 7, 7), (-0.1,) * 3, BASE)
    assert await check.wavers(Prompt(ids_of("x")), Prompt(ids_of(f"x{LABEL}")), said) is wavers
    assert not await check.wavers(
        Prompt(ids_of("x")), Prompt(ids_of(f"x{LABEL}")), replace(said, tokens=(7, 7), logp=(0.0, 0.0))
    )


class Refusing(Base):
    """Refuses to score anything."""

    async def score(self, prompt: Prompt, *, start: int, version: PolicyVersion, top_k: int = 0) -> Scores:
        raise RequestError("the prompt is too long")


async def test_a_refused_request_is_an_engine_that_cannot() -> None:
    said = SampledReply((7, 7, 7), (-0.1,) * 3, BASE)
    with pytest.raises(EngineError, match="the prompt is too long"):
        await others(Refusing()).content.wavers(Prompt((1,)), Prompt((2,)), said)
