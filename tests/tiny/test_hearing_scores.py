"""How sure the bundled judge must be: as little as leaves few wrong hints, over all and in each language."""

from __future__ import annotations

from collections import Counter
from random import Random

from openclaw_rl.judge.reading import TurnReading
from openclaw_rl.tiny.hearing import LITERAL, NONE, OTHER, Heard
from openclaw_rl.tiny.hearing_scores import MESSAGES, Guess, certainty, examples
from openclaw_rl.tiny.wordings import FILES, WISHES, table


def _guesses(
    count: int,
    *,
    sure: float,
    right: bool = False,
    language: str = "English",
    said: str = "short",
    heard: str = "short",
) -> list[Guess]:
    example = Heard(TurnReading("user", "", (), (), (), (), ()), -1, said, language=language)
    return [Guess(example, heard, sure, right, is_score_right=True, score_sure=1.0)] * count


def test_where_nothing_is_wrong_all_is_heard_that_is_more_likely_than_not() -> None:
    found = [*_guesses(500, sure=0.9, right=True), *_guesses(500, sure=0.6, right=True)]
    assert certainty(found) == 0.5
    assert certainty([*found, *_guesses(50, sure=0.99, said=NONE, heard=OTHER)]) == 0.5  # which gives no hint


def test_at_most_ten_of_a_thousand_are_wrong() -> None:
    # 11 wrong ones at 0.7 are too many of 1,000: only what is surer than they are is heard.
    found = [*_guesses(900, sure=0.9, right=True), *_guesses(11, sure=0.7, said=NONE)]
    found += _guesses(89, sure=0.6, right=True)
    assert certainty(found) == 0.71
    assert certainty([*found, *_guesses(150, sure=0.6, right=True)]) == 0.5  # 11 of 1,150
    assert certainty([*found, *_guesses(50, sure=0.99, heard="list")]) == 1.0  # nothing is sure enough


def test_no_language_may_have_more_than_twenty_of_a_thousand_wrong_ones() -> None:
    # Over all 5 wrong ones are 0.25 %; of what is said in French they are 2.5 %.
    found = [*_guesses(1_800, sure=0.9, right=True), *_guesses(195, sure=0.6, right=True, language="French")]
    assert certainty([*found, *_guesses(5, sure=0.65, said=NONE, language="French")]) == 0.66


def test_every_message_that_is_measured_with_is_an_example_with_its_wish_and_literal() -> None:
    held = table(MESSAGES)
    assert set(held) == set(FILES)
    count = 0
    for listed in held.values():
        assert isinstance(listed, dict)
        assert {*WISHES} < set(listed)
        count += sum(map(len, listed.values()))
    prose = ("Some ordinary prose, line by line, that has nothing to do with anything.\n" * 40,)
    found = examples(Random(0), prose, times=2)
    assert len(found) == 2 * count
    assert set(Counter(item.wish for item in found)) == {NONE, OTHER, *WISHES}
    placed = [item for item in found if item.wish in LITERAL and item.wish != "language"]
    for item in placed:
        assert item.reading.text[item.reading.places[item.first][0] : item.reading.places[item.last][1]] == item.literal
