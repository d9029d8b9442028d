"""Of two hints that the base model never follows together the newer one replaces the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from carry_doubles import label_renderer
from elsewhere_double import KIND, PLAIN, Base, others
from reading_double import (
    IDLE,
    KNOWN,
    SERVED,
    Elsewhere,
    Reader,
    assembling,
    base_serves,
    elsewhere,
    prompt_of,
    reader,
    the_turn,
)
from reading_double import PLAIN as PLAINLY

from openclaw_rl.core.hint import PlacedHint
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.turn import Turn
from openclaw_rl.teach.demonstrate import Demonstrator
from openclaw_rl.teach.elsewhere import LEAST_PAIRED, PAIRED
from openclaw_rl.teach.settings import TeachSettings
from openclaw_rl.testing.turns import a_turn

OTHER = PlacedHint(0, "k", KIND)
EARLIER = [a_turn(f"earlier {number}", f"What is {number} + 3?") for number in range(PAIRED)]


async def test_hints_of_which_no_reply_shows_both_are_rivals_and_each_two_are_tried_once() -> None:
    base = Base()  # told both, it follows the one
    found = others(base, *EARLIER, most=PAIRED)
    assert await found.rivals(a_turn("t"), PLAIN, [OTHER]) == [OTHER]
    drawn = len(base.drawn)
    assert {warmth for warmth, _ in base.drawn} == {0.0} and drawn == 2 * PAIRED
    assert await found.rivals(a_turn("another"), PLAIN, [OTHER]) == [OTHER]
    assert len(base.drawn) == drawn
    found.let_go()
    assert await found.rivals(a_turn("t"), PLAIN, [OTHER]) == [OTHER]
    assert len(base.drawn) == 2 * drawn


@pytest.mark.parametrize("order", [f"{KIND} {PLAIN}", f"{PLAIN} {KIND}"])
async def test_hints_that_are_followed_together_in_one_of_their_orders_are_none(order: str) -> None:
    found = others(Base(both=(order,)), *EARLIER, most=PAIRED)
    assert await found.rivals(a_turn("t"), PLAIN, [OTHER]) == []


async def test_nor_are_those_of_which_one_concerns_too_few_requests() -> None:
    assert await others(Base(), *EARLIER, most=PAIRED).rivals(a_turn("t"), PLAIN, [PlacedHint(0, "o", "Hm.")]) == []
    few = others(Base(), *EARLIER[: LEAST_PAIRED - 2], most=PAIRED)
    assert await few.rivals(a_turn("t"), PLAIN, [OTHER]) == []
    enough = others(Base(), *EARLIER[: LEAST_PAIRED - 1], most=PAIRED)
    assert await enough.rivals(a_turn("t"), PLAIN, [OTHER]) == [OTHER]


async def test_hints_of_which_too_little_was_known_are_compared_again() -> None:
    asked_meanwhile = list(EARLIER[:1])
    found = others(Base(), most=PAIRED)

    async def earlier(turn: Turn) -> Sequence[Turn]:
        return asked_meanwhile

    found.requests.earlier = earlier
    assert await found.rivals(a_turn("t"), PLAIN, [OTHER]) == []
    asked_meanwhile += EARLIER[1:]
    assert await found.rivals(a_turn("t"), PLAIN, [OTHER]) == [OTHER]


@dataclass
class Rivals(Elsewhere):
    """Finds `KNOWN` to be a rival of whatever it is asked for."""

    compared: list[str] = field(default_factory=list)

    async def rivals(self, turn: Turn, hint: str, known: Sequence[PlacedHint]) -> list[PlacedHint]:
        self.compared.append(hint)
        return [item for item in known if item.text == KNOWN]


def with_rivals(engine: Reader) -> Rivals:
    base = elsewhere(engine)
    return Rivals(engine, base.renderer, base.stop_ids, base.settings, base.requests)


async def test_a_rival_is_read_neither_with_the_corrected_request_nor_with_others_and_gives_way() -> None:
    told = [PlacedHint(0, KNOWN, KNOWN), PlacedHint(0, IDLE, IDLE)]
    engine = reader(bare=(7, 1, 1), known=SERVED, plain=(5, 6), known_plain=(7, 5, 6))  # the reply follows it
    found = with_rivals(engine)
    guide = Demonstrator(engine, base_serves, label_renderer(), (2,), TeachSettings(probe_tokens=8), found)
    sample, gave_way = await guide.demonstrated(the_turn(), prompt_of(()), told, assembling(PLAINLY))
    assert [hint.text for hint in sample.hints] == [PLAINLY]
    assert found.asked == [(PLAINLY, [IDLE])]
    assert gave_way == told[:1]


async def test_what_would_mean_nothing_in_another_task_replaces_no_wish() -> None:
    engine = reader(bare=(7, 1, 1), known=SERVED, plain=(5, 6), known_plain=(7, 5, 6))
    found = with_rivals(engine)
    guide = Demonstrator(engine, base_serves, label_renderer(), (2,), TeachSettings(probe_tokens=8), found)

    async def assembled(beside: Sequence[PlacedHint]) -> Sample:
        made = await assembling(PLAINLY)(beside)
        once = tuple(replace(hint, text=hint.text.replace(PLAINLY, "The right answer is 14")) for hint in made.hints)
        return replace(made, hints=once)

    await guide.demonstrated(the_turn(), prompt_of(()), [PlacedHint(0, KNOWN, KNOWN)], assembled)
    assert found.compared == []
