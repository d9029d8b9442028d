from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, tensor
from torch.testing import assert_close

from openclaw_rl.algo.methods.topk import (
    Divergence,
    bin_divergence,
    demonstration_distance,
    log_tail,
    tail_distance,
    with_tail,
)
from openclaw_rl.trainers.settings import MethodSettings


def test_the_tail_is_what_the_top_tokens_leave_over() -> None:
    assert_close(log_tail(tensor([0.5, 0.3]).log()).exp(), tensor(0.2), rtol=0, atol=1e-6)
    assert_close(log_tail(tensor([0.1, 0.1]).log()).exp(), tensor(0.8), rtol=0, atol=1e-6)
    assert with_tail(tensor([[0.5, 0.3]]).log()).exp().sum().item() == pytest.approx(1.0, abs=1e-6)


@settings(deadline=None)
@given(st.floats(-18.0, -0.01))
def test_a_tail_of_any_size_is_finite_and_has_a_finite_gradient(left: float) -> None:
    rest = math.exp(left)
    top = tensor([(1.0 - rest) * 0.7, (1.0 - rest) * 0.3], dtype=torch.float32).log().requires_grad_()
    tail = log_tail(top)
    assert math.isfinite(tail.item())
    if rest > 1e-3:  # where float32 can still tell the sum from 1
        assert tail.item() == pytest.approx(left, abs=1e-3)
    assert bool(torch.autograd.grad(tail, top)[0].isfinite().all())


def test_a_sum_of_one_or_more_by_rounding_gives_the_least_tail() -> None:
    for excess in (0.0, 1e-6):
        top = tensor([math.log(0.5), math.log(0.5) + excess], requires_grad=True)
        tail = log_tail(top)
        assert tail.item() == pytest.approx(math.log(1e-7), abs=0.1)
        assert bool(torch.autograd.grad(tail, top)[0].isfinite().all())


STUDENT, TEACHER = tensor([[0.5, 0.3, 0.2]]).log(), tensor([[0.25, 0.25, 0.5]]).log()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        # 0.5 ln 2 + 0.3 ln 1.2 + 0.2 ln 0.4
        (Divergence.REVERSE, 0.218012),
        # 0.25 ln 0.5 + 0.25 ln(5/6) + 0.5 ln 2.5
        (Divergence.FORWARD, 0.239279),
        # middle 0.375, 0.275, 0.35: half of 0.058021 + 0.053143
        (Divergence.JSD, 0.055582),
    ],
)
def test_divergences_are_as_worked_by_hand(kind: Divergence, value: float) -> None:
    assert bin_divergence(STUDENT, TEACHER, kind=kind).item() == pytest.approx(value, abs=1e-5)


@pytest.mark.parametrize("kind", list(Divergence))
def test_a_divergence_has_its_true_gradient_and_none_where_both_agree(kind: Divergence) -> None:
    logits = tensor([[0.3, -0.2, 0.9, 0.1]], dtype=torch.float64, requires_grad=True)
    teacher = tensor([[0.1, 0.2, -0.4, 0.6]], dtype=torch.float64).log_softmax(-1)

    def loss(raw: Tensor) -> Tensor:
        student = with_tail(raw.log_softmax(-1)[..., :2])
        return bin_divergence(student, with_tail(teacher[..., :2]), kind=kind).sum()

    assert torch.autograd.gradcheck(loss, (logits,))
    assert torch.autograd.grad(loss(logits), logits)[0].abs().max() > 1e-3
    own = teacher.clone().requires_grad_()
    assert torch.autograd.grad(loss(own), own)[0].abs().max() < 1e-9


def test_the_teachers_tokens_are_compared_and_demonstrations_always_forward_over_50() -> None:
    policy, teacher = (tensor([values]).log_softmax(-1) for values in ([0.3, 2.0, 0.1, 0.0], [2.0, 0.2, 1.0, 0.1]))
    options = MethodSettings(top_k=2, divergence="reverse", taught_temperature=1.0)
    top = tensor([[0, 2]])  # the teacher's two likeliest
    bins = [with_tail(each.gather(-1, top)) for each in (policy, teacher)]
    assert torch.equal(tail_distance(policy, teacher, None, options), bin_divergence(*bins, kind=Divergence.REVERSE))
    whole = (teacher.exp() * (teacher - policy)).sum(-1)  # all 4 tokens: no tail is left
    assert_close(demonstration_distance(policy, teacher, options), whole, rtol=0, atol=1e-5)


def test_demonstrations_are_learned_as_the_teacher_samples_them() -> None:
    """62 against 38 % are 67 against 33 % at temperature 0.7: 0.62^(1/0.7) = 0.5052, 0.38^(1/0.7) = 0.2510."""
    teacher = tensor([[0.62, 0.38]]).log()
    sampled = tensor([[0.5052, 0.2510]])
    sampled = (sampled / sampled.sum()).log()
    assert sampled.exp()[0, 0].item() == pytest.approx(0.668, abs=1e-3)
    assert_close(demonstration_distance(sampled, teacher, MethodSettings()), tensor([0.0]), rtol=0, atol=1e-6)
    assert demonstration_distance(teacher, teacher, MethodSettings()).item() > 1e-3
    policy = tensor([[0.5, 0.5]]).log().requires_grad_()
    assert torch.autograd.grad(demonstration_distance(policy, teacher, MethodSettings()).sum(), policy)[0][0, 0] < -0.6


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("inf"), float("nan")])
def test_a_temperature_is_above_0(temperature: float) -> None:
    with pytest.raises(ValueError, match="taught_temperature"):
        MethodSettings(taught_temperature=temperature)
