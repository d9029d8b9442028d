from __future__ import annotations

import math

import pytest
import torch
from torch import tensor
from torch.testing import assert_close

from openclaw_rl.algo.advantage import (
    baseline_advantage,
    combined_advantage,
    ema,
    group_advantage,
    hindsight_advantage,
    kept_advantage,
)


def test_replies_of_a_group_are_measured_in_population_deviations() -> None:
    # mean 0.25, std sqrt(0.6875) = 0.829
    advantage = group_advantage(tensor([1.0, -1.0, 1.0, 0.0]))
    assert advantage is not None
    assert_close(advantage, tensor([0.9045, -1.5076, 0.9045, -0.3015]), rtol=0, atol=1e-4)


@pytest.mark.parametrize("rewards", [[1.0, 1.0, 1.0], [0.0, 0.0], [0.1, 0.1, 0.1], [-1.0]])
def test_a_group_that_tells_nothing_apart_carries_no_signal(rewards: list[float]) -> None:
    assert group_advantage(tensor(rewards)) is None


def test_a_single_reply_is_measured_against_what_rewards_have_been() -> None:
    assert baseline_advantage(1.0, None) == 1.0
    assert baseline_advantage(1.0, 0.25) == 0.75
    assert baseline_advantage(0.0, 0.25) == -0.25


def test_a_baseline_follows_rewards() -> None:
    assert ema(None, 1.0, decay=0.9) == 1.0
    assert ema(1.0, -1.0, decay=0.9) == pytest.approx(0.8)


def test_a_hint_that_makes_a_token_likelier_praises_it() -> None:
    teacher, student = tensor([-0.5, -1.2]), tensor([-2.3, -1.0])
    assert_close(hindsight_advantage(teacher, student), tensor([1.8, -0.2]), rtol=0, atol=1e-6)
    assert_close(hindsight_advantage(teacher, student, clip=1.0), tensor([1.0, -0.2]), rtol=0, atol=1e-6)
    assert_close(hindsight_advantage(student, teacher, clip=1.0), tensor([-1.0, 0.2]), rtol=0, atol=1e-6)


def test_a_teacher_who_agrees_says_nothing() -> None:
    assert torch.equal(hindsight_advantage(tensor([-0.7]), tensor([-0.7]), clip=1.0), torch.zeros(1))


def test_signals_are_weighed_where_they_exist() -> None:
    rl, opd = tensor([1.0, 1.0]), tensor([0.5, -0.25])
    both = combined_advantage(rl, opd, w_rl=2.0, w_opd=4.0)
    assert both is not None
    assert_close(both, tensor([4.0, 1.0]), rtol=0, atol=0)
    alone = combined_advantage(None, opd, w_rl=2.0, w_opd=4.0)
    assert alone is not None
    assert_close(alone, tensor([2.0, -1.0]), rtol=0, atol=0)
    assert combined_advantage(rl, None, w_rl=0.0, w_opd=1.0) is None
    assert combined_advantage(None, None, w_rl=1.0, w_opd=1.0) is None


def test_a_weight_of_nothing_does_not_let_a_nan_through() -> None:
    kept = combined_advantage(tensor([1.0]), tensor([math.nan]), w_rl=1.0, w_opd=0.0)
    assert kept is not None
    assert kept.item() == 1.0


def test_what_a_grammar_left_little_of_counts_little() -> None:
    # shares of 1, 0.5 and 0.1 of the model's own distribution; one that rounding put above 1 is 1
    kept = tensor([1.0, 0.5, 0.1, 1.0]).log() + tensor([0.0, 0.0, 0.0, 1e-7])
    advantage = kept_advantage(tensor([0.9, -0.9, 0.9, 0.9]), kept)
    assert_close(advantage, tensor([0.9, -0.45, 0.09, 0.9]), rtol=0, atol=1e-7)
