"""What a classifier makes of words that it knows, that are mistyped, and that it never saw."""

from __future__ import annotations

import pytest

from openclaw_rl.judge.encoder import UNKNOWN, Spelling, letter_groups, spelling_bytes, spelling_of

WORDS = ("please", "answer", "short", "shirt", "no")
PARTS = ("<sh", "ort", "rt>", "<ple", "no>")


def test_a_known_word_has_a_row_of_its_own_and_those_of_its_known_letters() -> None:
    found = Spelling(WORDS, PARTS).rows("short")
    assert (found.whole, found.is_known) == (3, True)
    assert found.parts == (6, 7, 8)  # after the unknown and five words: "<sh", "ort", "rt>"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("pleas", 1),  # lost
        ("pllease", 1),  # doubled
        ("plaese", 1),  # changed places
        ("pkease", 1),  # another key
        ("answr", 2),
        ("nswer", 2),
        ("shrt", 3),  # "short" and "shirt" are as near: the more frequent one
        ("pls", UNKNOWN),  # too short to say
        ("plees", 1),  # the same consonants
        ("mahogany", UNKNOWN),
        ("4nswer", UNKNOWN),
    ],
)
def test_a_mistyped_word_is_read_as_the_one_it_may_be_a_slip_of(typed: str, meant: int) -> None:
    found = Spelling(WORDS, PARTS).rows(typed)
    assert (found.whole, found.is_known) == (meant, False)


def test_letters_that_nobody_taught_have_no_row() -> None:
    assert Spelling(WORDS, PARTS).rows("xyzzy") == Spelling(WORDS, PARTS).rows("qwqwqw")
    assert Spelling(WORDS, PARTS).rows("cohort").parts == (7, 8)


def test_groups_are_of_three_to_five_letters_with_the_ends_marked() -> None:
    assert letter_groups("no") == ["<no", "no>", "<no>"]
    assert letter_groups("?") == []


def test_a_spelling_is_read_as_it_was_written() -> None:
    read = spelling_of(spelling_bytes(WORDS, PARTS))
    assert [read.rows(word) for word in (*WORDS, "pleas")] == [
        Spelling(WORDS, PARTS).rows(word) for word in (*WORDS, "pleas")
    ]
