from __future__ import annotations

import math

import torch
from torch import Tensor, tensor
from torch.testing import assert_close

from openclaw_rl.algo.method import SelectedTokens
from openclaw_rl.algo.methods.hybrid import Subset, members, selected_distance, selected_objective
from openclaw_rl.trainers.settings import Method, MethodSettings


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


def test_the_policy_that_is_read_stands_for_the_one_that_sampled_if_nothing_is_selected() -> None:
    policy = tensor([[1.0, 0.0, -1.0]]).log_softmax(-1).requires_grad_()
    teacher = tensor([[-1.0, 0.0, 1.0]]).log_softmax(-1)
    options = MethodSettings(name=Method.HYBRID, top_k=1)
    ids = tensor([[0, 2]])  # the policy's likeliest and the teacher's
    selected = SelectedTokens(ids, torch.ones(1, 2, dtype=torch.bool), policy.detach().gather(-1, ids))
    found = [selected_distance(policy, teacher, each, options) for each in (None, selected)]
    assert torch.equal(*found)
    pushed = torch.autograd.grad(found[0].sum(), policy)[0][0]
    assert pushed[0] > 0 > pushed[2] and pushed[1] == 0  # minimised: the teacher's token gains
