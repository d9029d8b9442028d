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


def test_at_most_ten_of_a_thousand_hints_are_wrong_as_often_as_wishes_and_other_messages_come() -> None:
    # 12 wrong ones of 1,000 wishes are 1.02 % of all messages, and 11 are 0.94 %: 85 of 100 messages are wishes.
    right = _guesses(900, sure=0.9, right=True)
    assert certainty([*right, *_guesses(88, sure=0.6, right=True), *_guesses(12, sure=0.7, heard="list")]) == 0.71
    assert certainty([*right, *_guesses(89, sure=0.6, right=True), *_guesses(11, sure=0.7, heard="list")]) == 0.5
    assert certainty([*right, *_guesses(50, sure=0.99, heard="list")]) == 1.0  # nothing is sure enough
    # Of 100 messages 10 wish for nothing: 11 of 100 of these are 1.1 %.
    idle = _guesses(89, sure=0.9, said=NONE, heard=NONE)
    assert certainty([*right, *idle, *_guesses(11, sure=0.8, said=NONE)]) == 0.81
    assert certainty([*right, *idle, *_guesses(9, sure=0.8, said=NONE)]) == 0.5


def test_no_language_may_have_more_than_thirty_of_a_thousand_wrong_ones() -> None:
    # Over all 8 wrong ones of 2,003 are 0.3 %; of what is said in French they are 3.4 %.
    found = [*_guesses(1_800, sure=0.9, right=True), *_guesses(195, sure=0.6, right=True, language="French")]
    assert certainty([*found, *_guesses(8, sure=0.65, heard="list", language="French")]) == 0.66


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
