"""How sure a classifier must be of each wish, worked out on a few guesses by hand."""

from __future__ import annotations

from random import Random

import pytest

from openclaw_rl.tiny.hearing import OTHER, heard
from openclaw_rl.tiny.hearing_scores import Guess, certainties

EXAMPLE = heard(Random(0), ("Some ordinary prose.\n" * 40,))


def _guess(wish: str, sure: float, *, is_right: bool) -> Guess:
    return Guess(EXAMPLE, wish, sure, is_right, is_score_right=True, score_sure=1.0)


def _short() -> list[Guess]:
    """Three right ones above the wrong one, two below it."""
    right = [_guess("short", sure, is_right=True) for sure in (0.95, 0.9, 0.85, 0.7, 0.65)]
    return [*right, _guess("short", 0.8, is_right=False)]


def test_where_no_wrong_hint_may_be_given_all_below_the_first_wrong_one_are_left() -> None:
    assert certainties(_short()) == {"short": 0.85}


def test_where_a_few_may_be_wrong_more_is_heard() -> None:
    # 1 wrong of 206 things said is less than 7 of 1,000, so the two below it count too
    idle = [_guess(OTHER, 0.9, is_right=True)] * 200
    assert certainties([*_short(), *idle]) == {"short": 0.65}


def test_each_wish_has_a_certainty_of_its_own_and_never_less_than_a_half() -> None:
    sure_of_list = [_guess("list", sure, is_right=True) for sure in (0.9, 0.3)]
    assert certainties([*_short(), *sure_of_list]) == {"short": 0.85, "list": 0.5}


def test_a_wish_that_is_only_misheard_is_never_sure_enough() -> None:
    assert certainties([_guess("name", 0.99, is_right=False)]) == {"name": pytest.approx(1.0)}
