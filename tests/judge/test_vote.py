"""The one parser for all judges, and what votes add up to."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openclaw_rl.judge.llm import majority, mean_of, vote_of


@pytest.mark.parametrize(
    ("reply", "vote"),
    [
        ("The user moves on. \\boxed{1}", 1),
        ("\\boxed{-1}", -1),
        ("\\boxed{0}", 0),
        ("\\boxed{+1}", 1),
        ("\\boxed{ -1 }", -1),
        ("\\boxed{−1}", -1),  # a typographic minus
        ("At first \\boxed{1}, but no: \\boxed{-1}", -1),  # the last one counts
        ("\\boxed{1} and then \\boxed{7}", None),  # and counts even where it is no valid vote
        ("\\boxed{1} \\boxed{none}", 1),  # the last *integer*
        ("\\boxed{2}", None),
        ("\\boxed{-11}", None),
        ("\\boxed{1.0}", None),
        ("\\boxed{}", None),
        ("boxed{1}", None),
        ("1", None),
        ("", None),
        ("\\boxed{" + "9" * 5000 + "}", None),
        ("\\boxed{١}", None),  # digits of other scripts are no vote
    ],
)
def test_a_vote_is_the_last_boxed_integer_if_it_is_one_of_three(reply: str, vote: int | None) -> None:
    assert vote_of(reply) == vote


@settings(deadline=None)
@given(st.text())
def test_no_text_makes_the_parser_fail(reply: str) -> None:
    assert vote_of(reply) in (-1, 0, 1, None)


@settings(deadline=None)
@given(st.text(alphabet="\\boxed{}+-0123456789− "))
def test_nothing_that_looks_like_a_vote_makes_the_parser_fail(reply: str) -> None:
    assert vote_of("\\boxed{" + reply) in (-1, 0, 1, None)


@pytest.mark.parametrize(
    ("votes", "score"),
    [
        ([1, 1, -1], 1),
        ([-1, -1, 0], -1),
        ([1, -1], 0),  # a tie
        ([1, 0, -1], 0),
        ([1, 1, 0, 0], 0),  # a tie between 1 and 0
        ([None, None, -1], -1),  # only the valid votes count
        ([None, 1, 1], 1),
        ([0, 0, 1], 0),
        ([None, None, None], None),  # nobody voted, which is not 0
        ([], None),
    ],
)
def test_the_majority_of_the_valid_votes_decides(votes: list[int | None], score: int | None) -> None:
    assert majority(votes) == score


def test_the_mean_is_over_the_valid_votes_alone() -> None:
    assert mean_of([1, None, 0, -1, 1]) == 0.25
    assert mean_of([None]) is None
