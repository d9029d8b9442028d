"""How sure the bundled judge must be: as little as leaves few wrong hints, over all and in each language."""

from __future__ import annotations

from openclaw_rl.judge.reading import TurnReading
from openclaw_rl.tiny.hearing import Heard
from openclaw_rl.tiny.hearing_scores import Guess, certainties


def _guesses(count: int, *, sure: float, right: bool, language: str = "English", wish: str = "short") -> list[Guess]:
    example = Heard(TurnReading("user", "", (), (), (), (), ()), -1, wish if right else "none", language=language)
    return [Guess(example, wish, sure, right, is_score_right=True, score_sure=1.0)] * count


def test_where_nothing_is_wrong_all_is_heard_that_is_more_likely_than_not() -> None:
    found = [*_guesses(500, sure=0.9, right=True), *_guesses(500, sure=0.6, right=True)]
    assert certainties(found) == {"short": 0.6}


def test_at_most_ten_of_a_thousand_are_wrong() -> None:
    # 11 wrong ones at 0.7 are too many of 1,000: only what is surer than they are is heard.
    found = [*_guesses(900, sure=0.9, right=True), *_guesses(11, sure=0.7, right=False)]
    found += _guesses(89, sure=0.6, right=True)
    assert certainties(found) == {"short": 0.9}
    assert certainties([*found, *_guesses(150, sure=0.6, right=True)]) == {"short": 0.6}  # 11 of 1,150


def test_no_language_may_have_more_than_twenty_of_a_thousand_wrong_ones() -> None:
    # Over all 5 wrong ones are 0.25 %; of what is said in French they are 2.5 %.
    found = [*_guesses(1_800, sure=0.9, right=True), *_guesses(195, sure=0.6, right=True, language="French")]
    found += _guesses(5, sure=0.65, right=False, language="French")
    assert certainties(found) == {"short": 0.9}
