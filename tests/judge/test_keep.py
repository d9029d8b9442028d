"""Which hints are kept beyond the task they came from."""

from __future__ import annotations

import pytest

from openclaw_rl.core.hint import Hint, HintSource
from openclaw_rl.core.verdict import Verdict, VerdictSource, Vote
from openclaw_rl.judge.keep import best_founded, is_general, kept_hint
from openclaw_rl.testing.turns import a_turn

ASKED = "Mia has 3 pens and gets 4 more. How many pens does Mia have?"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Write plain sentences without any markdown.", True),
        ("Answer in at most 3 sentences.", True),
        ("Round to 2-decimal places.", True),
        ("Give prices with 2 decimals.", True),
        ("The answer was wrong. The right answer is 7.", False),
        ("Add the pens that Mia gets to those she has.", False),
        ("Explain every step in detail. Mark it with Roman letters.", True),
    ],
)
def test_a_wish_about_how_is_kept_and_the_answer_to_a_task_is_not(text: str, expected: bool) -> None:
    assert is_general(text, ASKED) is expected


def test_of_several_hints_the_one_most_like_the_others_is_kept() -> None:
    hints = (
        Hint("Read the question carefully."),
        Hint("Write plain sentences without markdown."),
        Hint("Plain sentences, no markdown, no bold text."),
    )
    verdict = Verdict("t1", -1, VerdictSource.VOTES, hints=hints)
    # words that count: {read, question, carefully}, {plain, sentences, markdown} and these with {bold, text}
    # agreement: 1, 1 + 3/5, 1 + 3/5; the first of equals
    assert kept_hint(a_turn("t1", ASKED), verdict, "") == hints[1]


@pytest.mark.parametrize(("found", "is_kept"), [(1, False), (2, True), (3, True)])
def test_what_a_minority_of_the_judges_tries_says_is_not_kept(found: int, is_kept: bool) -> None:
    hint = Hint("Write plain sentences without markdown.")
    votes = [Vote("hint", "", 1, hint.text)] * found + [Vote("hint", "", -1)] * (3 - found)
    verdict = Verdict("t1", -1, VerdictSource.VOTES, votes=(Vote("score", "", -1), *votes), hints=(hint,))
    assert (kept_hint(a_turn("t1", ASKED), verdict, "no markdown please") is not None) is is_kept


def test_a_verdict_whose_hints_are_all_about_the_task_keeps_none() -> None:
    verdict = Verdict("t1", -1, VerdictSource.VOTES, hints=(Hint("It must be 7, not 8."),))
    assert kept_hint(a_turn("t1", ASKED), verdict, "It is 7.") is None


@pytest.mark.parametrize(
    ("said", "others", "kept"),
    [
        ("I want a markdown format.", ("Write kindly.", "End with a song."), "Use a structured markdown format."),
        ("Redo it.", ("Use markdown format, structured.", "End with a song."), "Use a structured markdown format."),
        ("Redo it.", ("Write kindly.", "End with a song."), None),  # three tries, three inventions
        ("Sing it, please.", ("Write kindly.", "End with a song, sing."), "End with a song, sing."),
    ],
)
def test_a_kept_hint_echoes_what_the_user_said_or_another_try(
    said: str, others: tuple[str, ...], kept: str | None
) -> None:
    hints = [Hint("Use a structured markdown format."), *(Hint(text) for text in others)]
    votes = tuple(Vote("hint", "", 1, hint.text) for hint in hints)
    found = kept_hint(a_turn("t1", ASKED), Verdict("t1", -1, VerdictSource.VOTES, votes, tuple(hints)), said)
    assert (None if found is None else found.text) == kept


def test_what_the_user_wrote_themselves_needs_no_second_voice() -> None:
    own = Hint("In French.", HintSource.FOLLOWUP)
    assert kept_hint(a_turn("t1", ASKED), Verdict("t1", -1, VerdictSource.FEEDBACK, hints=(own,)), "x") == own


PLAIN = "In solutions: Write like a person would, in ordinary sentences without markdown, lists or a boxed answer."
MARKED = "In solutions: The user wants markdown with headers, bold text, numbered steps and a boxed answer."
MARKED_TOO = "In solutions: Use a structured markdown format with a header, numbered bold steps and a boxed answer."
UNMARKED = (
    "In solutions: Write plain natural sentences: no headers, no bold text, no numbered steps and no boxed answer."
)
WARM = "In solutions: You should use a warm and kind tone instead of a dry one."


@pytest.mark.parametrize(
    ("said", "tries", "founded"),
    [
        ("I would like that with a header.", (PLAIN, MARKED_TOO, MARKED), (MARKED_TOO, MARKED)),
        ("I miss some structure. Do it again in markdown.", (WARM, MARKED), (MARKED,)),
        ("I would like that as numbered steps.", (UNMARKED, MARKED), (MARKED,)),
        ("Drop the headers.", (UNMARKED, MARKED), ()),  # they contradict each other
        ("Redo it.", (PLAIN, MARKED), ()),  # nothing tells
        ("Redo it.", (MARKED, MARKED, WARM), (MARKED, MARKED)),
        ("Anything.", (WARM, WARM), (WARM, WARM)),
        ("Anything.", (), ()),
    ],
)
def test_a_try_that_the_others_and_the_user_speak_against_is_no_hint(
    said: str, tries: tuple[str, ...], founded: tuple[str, ...]
) -> None:
    assert best_founded([Hint(text) for text in tries], said, tries=3) == [Hint(text) for text in founded]


def test_a_hint_that_one_try_of_three_found_is_none() -> None:
    assert best_founded([Hint(WARM)], "Be warm and kind.", tries=3) == []
    assert best_founded([Hint(WARM)], "Be warm and kind.", tries=2) == [Hint(WARM)]
