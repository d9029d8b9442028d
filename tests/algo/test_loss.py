from __future__ import annotations

import math

import pytest
import torch
from torch import tensor, zeros
from torch.testing import assert_close

from openclaw_rl.algo.loss import (
    clipped_objective,
    is_clipped,
    kl_bounded,
    kl_k3,
    kl_weighed,
    policy_ratio,
    sequence_mean,
    token_mean,
    truncated_ratio,
)


def gradient(ratio: float, advantage: float, *, cap: float = 0.0) -> float:
    """d objective / d log pi at a ratio."""
    logp = tensor([math.log(ratio)], dtype=torch.float64, requires_grad=True)
    objective = clipped_objective(
        logp,
        zeros(1, dtype=torch.float64),
        tensor([advantage], dtype=torch.float64),
        clip_low=0.2,
        clip_high=0.28,
        ratio_cap=cap,
    )
    return float(torch.autograd.grad(objective.sum(), logp)[0])


def test_an_upward_step_is_cut_at_the_high_bound() -> None:
    # ratio 1.4, advantage 0.9: min(1.4 * 0.9, 1.28 * 0.9) = 1.152
    objective = clipped_objective(tensor([[1.4]]).log(), zeros(1, 1), tensor([[0.9]]), clip_low=0.2, clip_high=0.28)
    assert_close(objective, tensor([[1.152]]), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("ratio", "advantage", "value"),
    [(1.0, 0.9, 0.9), (0.5, 0.9, 0.45), (1.4, -1.0, -1.4), (0.5, -1.0, -0.8), (0.9, -2.0, -1.8)],
)
def test_the_objective_is_the_lesser_of_the_two(ratio: float, advantage: float, value: float) -> None:
    objective = clipped_objective(tensor([ratio]).log(), zeros(1), tensor([advantage]), clip_low=0.2, clip_high=0.28)
    assert_close(objective, tensor([value]), rtol=0, atol=1e-6)


def test_the_gradient_is_ratio_times_advantage_where_nothing_is_cut() -> None:
    assert gradient(1.1, 0.9) == pytest.approx(0.99, abs=1e-9)
    assert gradient(1.4, -1.0) == pytest.approx(-1.4, abs=1e-9)
    assert gradient(0.5, 0.9) == pytest.approx(0.45, abs=1e-9)


def test_a_token_that_went_far_enough_has_no_gradient() -> None:
    assert gradient(1.4, 0.9) == 0.0
    assert gradient(0.7, -1.0) == 0.0
    assert gradient(1.1, 0.0) == 0.0


def test_clipped_tokens_are_those_without_a_gradient() -> None:
    ratio, advantage = tensor([1.4, 0.7, 1.4, 0.7, 1.1]), tensor([1.0, -1.0, -1.0, 1.0, 1.0])
    found = is_clipped(ratio.log(), zeros(5), advantage, clip_low=0.2, clip_high=0.28)
    assert found.tolist() == [True, True, False, False, False]


def test_a_truncated_ratio_counts_as_the_cap_and_still_pushes() -> None:
    ratio = tensor([0.5, 3.0], requires_grad=True)
    truncated = truncated_ratio(ratio, 2.0)
    assert_close(truncated, tensor([0.5, 2.0]), rtol=0, atol=1e-6)
    assert_close(truncated_ratio(ratio, 0.0), ratio, rtol=0, atol=0)
    # d (2/3 * ratio) / d log ratio = 2
    assert gradient(3.0, -1.0, cap=2.0) == pytest.approx(-2.0, abs=1e-9)
    assert gradient(3.0, -1.0) == pytest.approx(-3.0, abs=1e-9)


def test_a_ratio_is_of_probabilities() -> None:
    assert_close(policy_ratio(tensor([0.3]).log(), tensor([0.2]).log()), tensor([1.5]), rtol=0, atol=1e-6)


def test_k3_is_zero_and_flat_where_the_policy_is_the_base() -> None:
    logp = tensor([-1.0], requires_grad=True)
    assert kl_k3(logp, tensor([-1.0])).item() == 0.0
    assert torch.autograd.grad(kl_k3(logp, tensor([-1.0])).sum(), logp)[0].item() == 0.0


def test_k3_is_never_negative_and_its_gradient_leads_back_to_the_base() -> None:
    # d = ln 2: 2 - ln 2 - 1 = 0.3069; d/dlogp = 1 - exp(d) = -1: descending raises logp towards the base
    logp = tensor([-1.0, -1.0], requires_grad=True)
    base = tensor([-1.0 + math.log(2.0), -1.0 - math.log(2.0)])
    assert_close(kl_k3(logp, base), tensor([0.306853, 0.193147]), rtol=0, atol=1e-5)
    assert_close(torch.autograd.grad(kl_k3(logp, base).sum(), logp)[0], tensor([-1.0, 0.5]), rtol=0, atol=1e-5)


def test_bounded_a_token_pulls_no_harder_from_two_nats_on() -> None:
    # d = ln 2 and -ln 2 as in k3; d = 3: exp(2) - 3 + (3 - 2) (exp(2) - 1) = 10.7781, and the slope stays exp(2) - 1
    logp = tensor([-1.0, -1.0, -4.0, -1001.0], requires_grad=True)
    base = tensor([-1.0 + math.log(2.0), -1.0 - math.log(2.0), -1.0, -1.0])
    found = kl_bounded(logp, base)
    assert_close(found[:3], tensor([0.306853, 0.193147, 10.778112]), rtol=0, atol=1e-5)
    slopes = torch.autograd.grad(found.sum(), logp)[0]
    assert_close(slopes, tensor([-1.0, 0.5, -6.389056, -6.389056]), rtol=0, atol=1e-5)


def test_weighed_by_its_importance_a_token_that_is_no_longer_said_does_not_pull() -> None:
    # d = ln 2: (2 - ln 2 - 1) / 2; its slope in logp is -d exp(-d). Likelier tokens count as in k3.
    logp = tensor([-1.0, -1.0, -13.0, -1001.0], requires_grad=True)
    base = tensor([-1.0 + math.log(2.0), -1.0 - math.log(2.0), -1.0, -1.0])
    found = kl_weighed(logp, base)
    assert_close(found[:2], tensor([0.153426, 0.193147]), rtol=0, atol=1e-5)
    assert found[2].item() < 1.0
    assert kl_k3(logp, base)[2].item() > 1e5
    slopes = torch.autograd.grad(found.sum(), logp)[0]
    assert_close(slopes[:2], tensor([-math.log(2.0) / 2, 0.5]), rtol=0, atol=1e-5)
    assert -1e-4 < slopes[2].item() < 0.0
    assert (found[3].item(), slopes[3].item()) == (1.0, 0.0)


def test_tokens_or_sequences_weigh_the_same() -> None:
    values = tensor([[1.0, 1.0, 1.0, 9.0], [5.0, 9.0, 9.0, 9.0]])
    mask = tensor([[1.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    assert token_mean(values, mask).item() == 2.0  # (3 + 5) / 4
    assert sequence_mean(values, mask).item() == 3.0  # (1 + 5) / 2


def test_a_mask_of_nothing_gives_nothing() -> None:
    values = tensor([[1.0, 2.0]], requires_grad=True)
    for mean in (token_mean, sequence_mean):
        assert mean(values, zeros(1, 2)).item() == 0.0
        assert torch.equal(torch.autograd.grad(mean(values, zeros(1, 2)), values)[0], zeros(1, 2))
    ones = torch.cat([tensor([[1.0, 0.0]]), zeros(1, 2)])  # an empty sequence is no part of the mean
    assert sequence_mean(tensor([[4.0, 9.0], [9.0, 9.0]]), ones).item() == 4.0
