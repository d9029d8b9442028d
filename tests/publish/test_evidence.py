"""Whether a version does worse: worked numbers, and how often chance alone is taken for it."""

from __future__ import annotations

import random

import pytest

from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.publish.watch import LEAST, share_at_most, suspects, wealth, worth
from openclaw_rl.store.tables.effects import CorrectionRecord

CHANCE = 0.005


def v(number: int) -> PolicyVersion:
    return PolicyVersion(SHARED, number)


def outcomes(*runs: tuple[int, str]) -> list[CorrectionRecord]:
    """By version, a letter for each turn: x for a corrected one."""
    flat = [(number, letter == "x") for number, letters in runs for letter in letters]
    return [CorrectionRecord(f"t{at}", v(number), bad, at) for at, (number, bad) in enumerate(flat)]


def test_a_share_known_from_few_turns_is_taken_as_high_as_it_may_be() -> None:
    # Without any turn, 95 % of an even belief lies below 0.95; none of 9 corrected is Beta(1, 10): 1 - 0.05^(1/10)
    assert share_at_most(0, 0) == pytest.approx(0.95, abs=0.003)
    assert share_at_most(0, 9) == pytest.approx(0.2589, abs=0.003)
    assert share_at_most(9, 9) == pytest.approx(1 - 0.0051, abs=0.005)  # 0.95^(1/10)


def test_the_bet_pays_for_corrections_and_loses_on_the_rest() -> None:
    # Bets on q evenly over (0.5, 1): one corrected turn is worth the mean of q / 0.5 = 0.75 / 0.5 = 1.5
    assert wealth([True], 0.5) == pytest.approx(1.5, abs=1e-9)
    # two: the mean of (q / 0.5)^2 = 4 (1 - 0.125) / 3 / 0.5 = 2.333
    assert wealth([True, True], 0.5) == pytest.approx(2.3333, abs=0.002)
    assert wealth([False, False, True], 0.5) == 1.0  # what it was worth at most, before anything was lost
    assert wealth([True] * 50, 1.0) == 1.0  # nothing is more than always


def test_a_version_that_is_corrected_again_and_again_is_found_out_within_a_few_turns() -> None:
    before = [False] * 19 + [True]
    found = [turns for turns in range(1, 20) if worth(before, [True] * turns) >= 1 / CHANCE]
    assert found[0] == 5
    assert worth([True] * 20, [True] * 40) < 1 / CHANCE  # it was no better before


@pytest.mark.parametrize("known", [LEAST, 40])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
def test_a_version_that_does_no_worse_is_rarely_taken_for_one_that_does(share: float, known: int) -> None:
    source, window, alarms = random.Random(7), 40, 0
    for _ in range(1000):
        before = [source.random() < share for _ in range(known)]
        since = [source.random() < share for _ in range(window)]
        alarms += worth(before, since) >= 1 / CHANCE
    assert alarms <= 10  # of 1000, at a chance of 0.005 each


def test_a_version_answers_for_itself_and_for_those_made_from_it() -> None:
    found = suspects([v(3), v(2), v(1), v(0)], outcomes((0, "x."), (1, ".."), (2, "x"), (3, "xx")), window=40)
    assert [(one.version, one.parent) for one in found] == [(v(3), v(2)), (v(2), v(1)), (v(1), v(0))]
    assert [(len(one.before), sum(item.is_corrected for item in one.since)) for one in found] == [
        (5, 2),
        (4, 3),
        (2, 3),
    ]
    assert found[1].words == "3 of 3 judged turns corrected since, 1 of 4 before"


def test_a_version_that_was_watched_to_the_end_is_left_alone() -> None:
    found = suspects([v(2), v(1), v(0)], outcomes((0, ".."), (1, "...."), (2, "xx")), window=5)
    assert [one.version for one in found] == [v(2)]  # six turns since version 1


def test_what_versions_off_the_path_did_counts_for_nothing() -> None:
    found = suspects([v(3), v(1), v(0)], outcomes((0, "."), (1, "."), (2, "xxxx"), (3, ".")), window=5)
    assert [(len(one.before), len(one.since)) for one in found] == [(2, 1), (1, 2)]


def test_the_turns_of_the_version_before_are_the_measure_and_earlier_ones_where_they_are_few() -> None:
    many = suspects([v(2), v(1), v(0)], outcomes((0, "x" * 20), (1, "." * 12), (2, "x")), window=30)
    assert [len(one.before) for one in many] == [12, 20]
    few = suspects([v(2), v(1), v(0)], outcomes((0, "x" * 20), (1, "...."), (2, "x")), window=30)
    assert [(len(one.before), sum(item.is_corrected for item in one.before)) for one in few] == [(8, 4), (20, 20)]


def test_without_turns_before_nothing_is_said() -> None:
    assert suspects([v(1), v(0)], outcomes((1, "xxxx")), window=5) == []
    assert suspects([v(0)], outcomes((0, "xxxx")), window=5) == []
