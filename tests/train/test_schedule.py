"""When a step is due, and over which samples."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from train_doubles import rehearsal, sample

from openclaw_rl.core.ledger import DropReason
from openclaw_rl.core.sample import Sample, Wants, teaches
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.train.schedule import Moment, RehearsalBudget, batch, is_open, outdated, why_waiting
from openclaw_rl.train.settings import TrainSettings

SETTINGS = TrainSettings(batch_size=4, min_batch=2, max_wait_s=60.0, idle_s=10.0, train_window="22-6")
NIGHT = Moment(minute=23 * 60, idle_s=100.0)


@pytest.mark.parametrize(
    ("ready", "waited_s", "why"),
    [
        (0, 0.0, "there is nothing new to learn from"),
        (1, 999.0, "1 of the at least 2 samples"),
        (3, 0.0, "3 of 4 samples are ready; without more, a step is taken in 60 s"),
        (3, 59.0, "in 1 s"),
        (3, 60.0, ""),
        (4, 0.0, ""),
        (9, 0.0, ""),
    ],
)
def test_a_step_is_due_when_the_batch_is_full_or_has_waited_long_enough(ready: int, waited_s: float, why: str) -> None:
    assert why in why_waiting(ready, waited_s, NIGHT, SETTINGS)
    assert bool(why_waiting(ready, waited_s, NIGHT, SETTINGS)) is bool(why)


def test_a_smaller_batch_after_a_failure_is_due_at_once() -> None:
    assert why_waiting(2, 0.0, NIGHT, SETTINGS) != ""
    assert why_waiting(2, 0.0, NIGHT, SETTINGS, most=2) == ""
    assert why_waiting(1, 0.0, NIGHT, SETTINGS, most=1) == ""


def test_no_step_is_taken_outside_the_hours_or_while_somebody_is_served() -> None:
    assert "between 22-6 only" in why_waiting(4, 0.0, replace(NIGHT, minute=12 * 60), SETTINGS)
    assert "server was idle for 10 s" in why_waiting(4, 0.0, replace(NIGHT, idle_s=9.9), SETTINGS)


@pytest.mark.parametrize(
    ("window", "hour", "minute", "answer"),
    [
        ("", 12, 0, True),
        ("9-17", 9, 0, True),
        ("9-17", 16, 59, True),
        ("9-17", 17, 0, False),
        ("22:30-6:15", 22, 29, False),
        ("22:30-6:15", 22, 30, True),
        ("22:30-6:15", 6, 14, True),
        ("22:30-6:15", 6, 15, False),
    ],
)
def test_a_window_may_span_midnight(window: str, hour: int, minute: int, answer: bool) -> None:
    assert is_open(window, hour * 60 + minute) is answer


@pytest.mark.parametrize("window", ["night", "25-3", "9", "9-", "9:61-10"])
def test_a_window_that_is_none_is_refused(window: str) -> None:
    with pytest.raises(ValueError, match="write it as"):
        TrainSettings(train_window=window)


def scored(item: Sample) -> bool:
    return teaches(item, Wants.SCORE)


def names(samples: tuple[Sample, ...]) -> list[str]:
    return [item.turn for item in samples]


def test_a_batch_takes_the_oldest_that_teach_and_some_rehearsals_beside_them() -> None:
    ready = [rehearsal("r1"), sample("a"), rehearsal("r2"), sample("b"), rehearsal("r3"), sample("c")]
    assert names(batch(ready, scored, size=8, room=RehearsalBudget(4, 100))) == ["r1", "a", "r2", "b", "r3", "c"]
    assert names(batch(ready, scored, size=2, room=RehearsalBudget(1, 100))) == ["r1", "a", "b"]
    assert names(batch(ready, scored, size=2, room=RehearsalBudget(0, 100))) == ["a", "b"]


def test_rehearsals_make_no_batch_by_themselves() -> None:
    hinted = rehearsal("r3", rehearses=("Be brief.",))
    for wants in Wants:
        assert (
            batch([rehearsal("r1"), hinted], partial(teaches, wants=wants), size=4, room=RehearsalBudget(4, 100)) == ()
        )


def test_rehearsals_are_taken_from_each_kind_in_turn_the_fullest_first() -> None:
    brief, kind = ("Be brief.",), ("Be kind.",)
    ready = [
        rehearsal("b1", rehearses=brief),
        rehearsal("k1", rehearses=kind),
        rehearsal("k2", rehearses=kind),
        rehearsal("k3", rehearses=kind),
        rehearsal("bob", rehearses=kind, user="bob"),
        sample("a"),
    ]
    assert names(batch(ready, scored, size=1, room=RehearsalBudget(2, 100))) == ["b1", "k1", "a"]
    assert names(batch(ready, scored, size=1, room=RehearsalBudget(1, 100))) == ["k1", "a"]
    assert names(batch(ready, scored, size=1, room=RehearsalBudget(4, 100))) == ["b1", "k1", "k2", "bob", "a"]


def test_samples_put_off_wait_for_the_others_and_are_then_tried_alone_fewest_failures_first() -> None:
    ready = [sample("p"), sample("q"), sample("a")]
    assert names(batch(ready, scored, size=4, room=RehearsalBudget(0, 0), put_off={"p": 3, "q": 2})) == ["a"]
    assert names(batch(ready[:2], scored, size=4, room=RehearsalBudget(0, 0), put_off={"p": 3, "q": 2})) == ["q"]


def test_what_has_seen_too_many_versions_pass_is_dropped_with_the_reason() -> None:
    version = [PolicyVersion(SHARED, number) for number in range(8)]
    ready = [sample("old", version=version[1]), sample("fits", version=version[2]), rehearsal("r", version[1])]
    live = [version[1], version[2], version[4], version[5], version[7]]  # 3 and 6 were refused: they do not count
    found = outdated(ready, scored, live, max_lag=3, room=RehearsalBudget(9, 100))
    assert found == (("old", DropReason.STALE),)  # rehearsals may wait
    assert outdated(ready, scored, live, max_lag=4, room=RehearsalBudget(9, 100)) == ()


def test_of_rehearsals_that_pile_up_the_oldest_of_the_fullest_kind_are_dropped() -> None:
    ready = [rehearsal("b1", rehearses=("Be brief.",)), rehearsal("r1"), sample("a"), rehearsal("r2"), rehearsal("r3")]
    assert outdated(ready, scored, [], max_lag=4, room=RehearsalBudget(3, 100)) == (("r1", DropReason.NO_SIGNAL),)
    found = outdated(ready, scored, [], max_lag=4, room=RehearsalBudget(0, 100))
    assert [turn for turn, _ in found] == ["b1", "r1", "r2", "r3"]


@pytest.mark.parametrize(
    "wrong",
    [{"batch_size": 0}, {"min_batch": 0}, {"max_lag": -1}, {"rehearsal_samples": -1}, {"retry_s": 0.0}],
)
def test_settings_refuse_what_makes_no_sense(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        TrainSettings(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "needed"),
    [
        (TrainSettings(), 1),
        (TrainSettings(min_batch=4), 4),
        (TrainSettings(batch_size=2, min_batch=4), 2),
        (TrainSettings(max_wait_s=60.0), 16),
    ],
)
def test_what_makes_a_step_due_at_once_is_what_the_status_says(settings: TrainSettings, needed: int) -> None:
    assert settings.needed == needed
    now = Moment(minute=0, idle_s=1e9)
    assert why_waiting(needed, 0.0, now, settings) == ""
    assert why_waiting(needed - 1, 0.0, now, settings)
