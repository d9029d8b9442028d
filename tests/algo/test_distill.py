from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, tensor
from torch.testing import assert_close

from openclaw_rl.algo.distill import (
    Divergence,
    HintGranularity,
    Subset,
    bin_divergence,
    chosen_hint,
    log_tail,
    members,
    overlap,
    selected_objective,
    with_tail,
)


def test_the_tail_is_what_the_top_tokens_leave_over() -> None:
    assert_close(log_tail(tensor([0.5, 0.3]).log()).exp(), tensor(0.2), rtol=0, atol=1e-6)
    assert_close(log_tail(tensor([0.1, 0.1]).log()).exp(), tensor(0.8), rtol=0, atol=1e-6)
    assert with_tail(tensor([[0.5, 0.3]]).log()).exp().sum().item() == pytest.approx(1.0, abs=1e-6)


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


STUDENT_TOP = tensor([[1, 2], [3, 4]])
TEACHERS_TOP = tensor([[[1, 2], [8, 9]], [[1, 9], [3, 9]], [[7, 8], [4, 3]]])


def test_overlap_counts_tokens_both_hold_in_whatever_order() -> None:
    assert overlap(STUDENT_TOP, TEACHERS_TOP).tolist() == [[2, 0], [1, 1], [0, 2]]


def test_one_hint_is_chosen_for_the_reply_or_one_for_each_token() -> None:
    assert chosen_hint(STUDENT_TOP, TEACHERS_TOP, by=HintGranularity.SEQUENCE).tolist() == [0, 0]  # 2, 2, 2: the first
    assert chosen_hint(STUDENT_TOP, TEACHERS_TOP[1:], by=HintGranularity.SEQUENCE).tolist() == [0, 0]
    assert chosen_hint(STUDENT_TOP, TEACHERS_TOP, by=HintGranularity.TOKEN).tolist() == [0, 2]
    more = torch.cat([TEACHERS_TOP, STUDENT_TOP.unsqueeze(0)])
    assert chosen_hint(STUDENT_TOP, more, by=HintGranularity.SEQUENCE).tolist() == [3, 3]


def test_subsets_are_whose_tokens_are_compared() -> None:
    student, teacher = tensor([[1, 2]]), tensor([[2, 5]])
    found = {
        subset: [
            token
            for token, counts in zip(
                *(part[0].tolist() for part in members(student, teacher, subset=subset)), strict=True
            )
            if counts
        ]
        for subset in Subset
    }
    assert found == {
        Subset.STUDENT: [1, 2],
        Subset.TEACHER: [2, 5],
        Subset.OVERLAP: [2],
        Subset.UNION: [1, 2, 5],
    }


def objective(logp: Tensor, old: Tensor, teacher: Tensor, counts: Tensor, clip: float = 1.0) -> Tensor:
    return selected_objective(logp, old, teacher, counts, clip=clip, clip_low=0.2, clip_high=0.28)


def test_selected_tokens_are_pushed_by_their_weight_and_their_clipped_gap() -> None:
    old = tensor([[0.6, 0.2]]).log()  # weights 0.75, 0.25
    teacher = tensor([[0.3, 0.2 * math.e**2]]).log()  # gaps -0.693, and 2 cut to 1
    counts = torch.ones(1, 2, dtype=torch.bool)
    logp = old.clone().requires_grad_()
    value = objective(logp, old, teacher, counts)
    assert_close(value.detach(), tensor([-0.75 * 0.693147 + 0.25]), rtol=0, atol=1e-5)
    pushed = torch.autograd.grad(value.sum(), logp)[0]
    assert_close(pushed, tensor([[-0.519860, 0.25]]), rtol=0, atol=1e-5)
    unclipped = objective(old, old, teacher, counts, clip=0.0)
    assert_close(unclipped, tensor([-0.519860 + 0.5]), rtol=0, atol=1e-5)


def test_tokens_that_do_not_count_have_no_weight_and_no_gradient() -> None:
    old = tensor([[0.6, 0.2], [0.5, 0.1]]).log()
    teacher = tensor([[0.3, 0.4], [0.9, 0.05]]).log()
    counts = tensor([[False, True], [False, False]])
    logp = old.clone().requires_grad_()
    value = objective(logp, old, teacher, counts)
    # the second alone has weight 1 and gap ln 2
    assert_close(value.detach(), tensor([math.log(2.0), 0.0]), rtol=0, atol=1e-5)
    pushed = torch.autograd.grad(value.sum(), logp)[0]
    assert_close(pushed, tensor([[0.0, math.log(2.0)], [0.0, 0.0]]), rtol=0, atol=1e-5)


def test_a_teacher_who_agrees_pushes_nothing() -> None:
    old = tensor([[0.6, 0.2]]).log()
    logp = old.clone().requires_grad_()
    value = objective(logp, old, old, torch.ones(1, 2, dtype=torch.bool))
    assert torch.equal(torch.autograd.grad(value.sum(), logp)[0], torch.zeros(1, 2))
