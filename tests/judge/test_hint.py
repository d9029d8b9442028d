"""Which texts are hints."""

from __future__ import annotations

import pytest

from openclaw_rl.core.hint import Hint
from openclaw_rl.core.verdict import Vote
from openclaw_rl.judge.hint import accepted, distinct, marked_text, says_something


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ("[HINT_START]\nUse metric units.\n[HINT_END]\n\\boxed{1}", "Use metric units."),
        ("[HINT_START]first[HINT_END] [HINT_START]second[HINT_END]", "second"),
        ("[HINT_START]  [HINT_END]", None),
        ("[HINT_START]never closed", None),
        ("no marks at all", None),
        ("", None),
    ],
)
def test_a_hint_stands_between_the_marks(reply: str, text: str | None) -> None:
    assert marked_text(reply) == text


@pytest.mark.parametrize(
    "text",
    [
        "Be concise.",
        "Write in plain sentences, without bold text.",
        "The answer should be 42.",
        "The user prefers metric units.",
        "You should have read the file before you changed it.",
        "请用简单的句子回答这个问题，不要用标题。",
    ],
)
def test_a_text_that_says_what_would_have_been_better_is_a_hint(text: str) -> None:
    assert says_something(text)


@pytest.mark.parametrize(
    "text",
    [
        "The reply was wrong.",
        "The user was not satisfied with the response.",
        "You should have given a better answer.",
        "That is not good, please try again.",
        "The answer was incorrect and the user is unhappy with it.",
        "This is bad!!! Really bad. Redo it.",
        "Be brief.",  # 9 characters
        "1234567890",  # 10 characters; longer than 10 is needed
        "",
        "              ",
    ],
)
def test_a_text_that_only_blames_or_is_short_is_no_hint(text: str) -> None:
    assert not says_something(text)


def test_only_a_vote_of_one_makes_its_text_a_hint() -> None:
    text = "Write in plain sentences."
    votes = [Vote("hint", "", score, text) for score in (-1, 0, None)]
    assert accepted(votes, "", "") == []
    assert accepted([*votes, Vote("hint", "", 1, text)], "", "") == [Hint(text)]
    assert accepted([Vote("hint", "", 1, "The reply was bad.")], "", "") == []
    assert accepted([Vote("hint", "", 1, None)], "", "") == []


LONG, SHORT = Hint("Write in plain sentences, without bold text."), Hint("Avoid markdown.")


def test_hints_of_the_same_words_are_one_and_all_others_are_kept_in_order() -> None:
    again = Hint("  avoid MARKDOWN ")  # the same words
    assert distinct([SHORT, again, LONG]) == (SHORT, LONG)
    assert distinct([]) == ()
