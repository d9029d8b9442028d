"""Variants of a request: other numbers, and less in it, in any language."""

from __future__ import annotations

from openclaw_rl.teach.variants import MOST_LEFT, with_less, with_other_numbers

ASKED = "Ada has 3 cards. Ada buys 5 more and gives 3 to Ned. How many has she?"


def _numbers(text: str) -> list[str]:
    return [word for word in text.split() if word.isdecimal()]


def test_equal_numbers_remain_equal_in_every_other_variant_and_everything_else_is_as_it_was() -> None:
    found = with_other_numbers(ASKED, 8)
    assert len(set(found)) == 8 and ASKED not in found and found == with_other_numbers(ASKED, 8)
    for text in found:
        first, second, third = _numbers(text)
        assert text == f"Ada has {first} cards. Ada buys {second} more and gives {third} to Ned. How many has she?"
    assert all(_numbers(text)[0] == _numbers(text)[2] for text in found[::2])
    assert any(_numbers(text)[0] != _numbers(text)[2] for text in found[1::2])


def test_of_a_request_with_equal_numbers_not_all_variants_have_equal_ones() -> None:
    asked = "Ada has 6 cards and buys 6 more. Then she gives 6 to Ned. How many has she?"
    for made in (with_other_numbers(asked, 8), with_less(asked, 8)):
        assert any(len(set(_numbers(text))) > 1 for text in made)


def test_a_number_keeps_its_length_its_first_digits_and_its_script() -> None:
    for text in with_other_numbers("1987 \u0663 07", 20):
        year, arabic, padded = text.split()
        assert year.startswith("19") and len(year) == 4 and len(padded) == 2
        assert "\u0661" <= arabic <= "\u0669"


def test_without_a_number_there_is_no_variant() -> None:
    assert with_other_numbers("Why does bread rise?", 3) == []


def test_with_less_in_it_a_sentence_ends_earlier_or_is_missing() -> None:
    found = with_less(ASKED, 8)
    assert found and all(3 <= len(text.split()) <= MOST_LEFT * len(ASKED.split()) for text in found)
    assert any(text.endswith("How many has she?") for text in found)
    assert all(text[-1] in ".?" and "  " not in text for text in found)


def test_of_a_few_words_nothing_is_left_out() -> None:
    assert with_less("Hello there!", 3) == with_less("", 3) == with_less("...", 3) == []
