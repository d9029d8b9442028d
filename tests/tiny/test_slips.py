"""How people type in a hurry: seeded, different, and a literal is left as it is."""

from __future__ import annotations

from random import Random

import pytest

from openclaw_rl.tiny.slips import typed
from openclaw_rl.tiny.wordings import FILES

TEXTS = {
    "en": "please start with Ahoy there because you never do what people want",
    "de": "bitte fang mit Ahoy there an, das ist doch nicht so schwer",
    "fr": "s'il te plaît commence par Ahoy there, c'est pas trop demander",
    "es": "por favor empieza con Ahoy there porque siempre lo olvidas",
    "it": "per favore inizia con Ahoy there perché non lo fai mai",
}


@pytest.mark.parametrize("code", FILES)
def test_what_is_typed_in_a_hurry_differs_and_keeps_the_literal_where_it_says(code: str) -> None:
    rng, text, literal, seen = Random(0), TEXTS[code], "Ahoy there", set()
    for _ in range(300):
        made, at = typed(rng, text, code, at=text.index(literal), written=literal)
        assert made[at : at + len(literal)] == literal
        seen.add(made)
    assert len(seen) > 150


def test_without_a_literal_all_of_it_is_typed() -> None:
    made = {typed(Random(seed), TEXTS["en"], "en", at=-1, written="") for seed in range(100)}
    assert len(made) > 50
    assert {at for _, at in made} == {-1}


def test_the_short_forms_of_messages_are_used() -> None:
    made = " ".join(typed(Random(seed), TEXTS["en"], "en", at=-1, written="")[0] for seed in range(200)).split()
    assert {"u", "ppl", "cuz"} <= set(made)
