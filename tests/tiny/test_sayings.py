"""Whole messages that the bundled judge's classifier is taught: every wish, in every language."""

from __future__ import annotations

from random import Random

import pytest

from openclaw_rl.tiny.sayings import OTHERS, other_saying, saying
from openclaw_rl.tiny.wordings import FILES, WISHES, table


@pytest.mark.parametrize("code", FILES)
def test_every_language_has_messages_for_every_wish_and_without_one(code: str) -> None:
    held = table(f"said_{code}")
    assert set(held) == {*WISHES, *OTHERS}
    for texts in held.values():
        assert isinstance(texts, list)
        assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("code", FILES)
def test_a_literal_stands_where_the_message_says(code: str) -> None:
    rng = Random(0)
    for _ in range(1_000):
        wish = rng.choice(WISHES)
        said = saying(rng, code, wish=wish)
        assert said.wish == wish
        assert "{" not in said.text
        assert "\x01" not in said.text
        if wish in ("first", "last", "name", "language"):
            assert said.text[said.at : said.at + len(said.written)] == said.written
            assert said.literal
        else:
            assert said.at == -1


def test_what_holds_no_known_wish_has_a_score() -> None:
    rng = Random(1)
    drawn = [other_saying(rng, rng.choice(FILES)) for _ in range(2_000)]
    assert {about for _, about in drawn} == set(OTHERS)
    assert not [text for text, _ in drawn if "{" in text]
