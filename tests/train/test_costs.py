"""What a step costs is found from steps that were taken."""

from __future__ import annotations

from dataclasses import replace

import pytest
from train_doubles import sample

from openclaw_rl.core.adapter import StepReport
from openclaw_rl.core.sample import HintPrompt, OtherRequestReply, Sample, SampledReply
from openclaw_rl.core.version import BASE
from openclaw_rl.train.costs import Costs, MeasuredStep, StepWork, step_of, work_of


def long(name: str, tokens: int, *, common: int = 0) -> Sample:
    """A prompt of so many tokens, the first of which other samples have too; replies of two tokens."""
    prompt = tuple(range(common)) + tuple(1_000_000 + hash(name) % 1000 * 100_000 + at for at in range(tokens - common))
    return replace(sample(name), prompt=prompt)


def took(work: StepWork, seconds: float, updates: float = 2.0) -> StepReport:
    return StepReport(True, {"seconds": seconds, "updates": updates, "updates_undone": 0.0})


def test_what_samples_share_is_counted_once() -> None:
    # Prompts 1 2 3 and 1 2 9 4, replies of two tokens; the hinted prompt of the first is 1 2 3 8.
    one = replace(sample("a"), prompt=(1, 2, 3), hints=(HintPrompt("h", (1, 2, 3, 8)),))
    two = replace(sample("b"), prompt=(1, 2, 9, 4))
    found = work_of([one, two], reads_all=False)
    # The base model: 1 2 | 3 | 4 5 and | 8 4 5 | 9 4 4 5 (the replies are 4 5): 2 + 1 + 2 + 3 + 4 = 12 tokens, at
    # positions 0 1, 2, 3 4, 3 4 5 and 2 3 4 5: 1 + 2 + 7 + 12 + 14 = 36. The policy: 1 2, 3, 9 4: 5 tokens, 1 + 2 + 5.
    assert (found.read, found.read_before) == (12 + 5, 36 + 8)
    assert (found.each, found.each_before) == (4, (3 + 4) + (4 + 5))
    everything = work_of([one, two], reads_all=True)
    assert (everything.read, everything.each) == (12, 9)


def test_replies_beside_the_served_one_are_updated_too() -> None:
    shown = (SampledReply((7, 7, 7), (-1.0,) * 3, BASE),)
    assert work_of([replace(sample("a"), shown=shown)], reads_all=False).each == 2 + 3


def test_replies_to_other_requests_are_read_behind_their_own_prompts() -> None:
    other = OtherRequestReply((8, 8), HintPrompt("h", (8, 9, 8)), SampledReply((7, 7), (-1.0,) * 2, BASE))
    found = work_of([replace(sample("a"), elsewhere=(other,))], reads_all=False)
    # the sample alone: 5 tokens read by the base and 3 by the policy; the other: 8 8 7 7, 9 8 7 7 behind 8, and 8 8
    assert (found.read, found.each) == (5 + 3 + 4 + 4 + 2, 2 + 2)
    assert found.each_before == (3 + 4) + (2 + 3)


@pytest.mark.parametrize("reads_all", [False, True])
def test_demonstrations_that_only_check_a_step_are_read_once(*, reads_all: bool) -> None:
    check = OtherRequestReply(
        (8, 8), HintPrompt("h", (8, 9, 8)), SampledReply((7, 7), (-1.0,) * 2, BASE), is_check=True
    )
    alone = work_of([sample("a")], reads_all=reads_all)
    found = work_of([replace(sample("a"), elsewhere=(check,))], reads_all=reads_all)
    assert (found.read, found.read_before) == (alone.read + 4, alone.read_before + 0 + 1 + 2 + 3)  # 8 8 7 7
    assert (found.each, found.each_before) == (alone.each, alone.each_before)


def test_as_many_updates_are_reckoned_with_as_steps_made() -> None:
    costs = Costs(limit_s=600.0, updates=40)
    work = costs.work_of([replace(long("a", 1000), response=(7,) * 60, logp=(-1.0,) * 60, mask=(True,) * 60)])
    for updates in (6.0, 12.0):
        costs.taken(work, took(work, 1e-3 * work.units(updates, 1000.0), updates))
    assert costs.seconds(work) == pytest.approx(1e-3 * work.units(12.0, 1000.0), rel=0.1)
    assert costs.at_least_s(work) == pytest.approx(1e-3 * work.units(6.0, 1000.0), rel=0.2)


def test_before_any_step_nothing_is_known_and_nothing_is_beyond() -> None:
    costs = Costs(limit_s=1.0, updates=2)
    work = costs.work_of([long("a", 100_000)])
    assert costs.seconds(work) == float("inf") and not costs.is_beyond(work)
    assert not costs.fits(work) and costs.fits(costs.work_of([long("b", 100)]))


@pytest.mark.parametrize("even", [500.0, 1000.0, 6000.0])
def test_steps_of_several_lengths_tell_what_another_length_costs(even: float) -> None:
    costs = Costs(limit_s=600.0, updates=2)
    for tokens in (200, 1000, 4000):
        work = costs.work_of([long("a", tokens)])
        costs.taken(work, took(work, 1e-3 * work.units(2.0, even)))
    work = costs.work_of([long("b", 16000)])
    right = 1e-3 * work.units(2.0, even)
    assert 0.7 * right < costs.at_least_s(work) < 1.3 * right
    assert 0.7 * right < costs.seconds(work) < 1.3 * right


def test_short_steps_alone_leave_open_what_long_ones_cost() -> None:
    costs = Costs(limit_s=600.0, updates=1)
    short = costs.work_of([long("a", 300)])
    costs.taken(short, took(short, 30.0, updates=1.0))
    far = costs.work_of([long("b", 20_000)])
    assert costs.at_least_s(far) == 0.0 and costs.limit_s < costs.seconds(far)
    assert not costs.fits(far) and not costs.is_beyond(far)  # it is tried, alone


def test_a_step_given_up_is_taken_to_need_longer_than_that() -> None:
    costs = Costs(limit_s=600.0, updates=2)
    short = costs.work_of([long("a", 300)])
    costs.taken(short, took(short, 1.0))
    far = costs.work_of([long("b", 15_000)])
    assert not costs.is_beyond(far)
    costs.given_up(far, 1800.0)
    assert costs.at_least_s(far) >= 1500.0 and costs.seconds(far) > 1800.0
    assert costs.seconds(short) < 20.0


def test_what_was_measured_is_known_again_from_its_numbers_under_the_same_means_alone() -> None:
    step = MeasuredStep(StepWork(1.0, 2.0, 3.0, 4.0), 5.0, 6.0, is_given_up=True)
    assert step_of(step.metrics(7.0), 7.0) == step
    assert step_of(step.metrics(7.0), 8.0) is None
    assert step_of({"loss": 1.0}, 7.0) is None
