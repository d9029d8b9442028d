"""Importance weights against sums over every reply there is: three tokens, three long, so 27 replies.

Policy and sampler are tables of logits by what was said before, and every expectation is a finite sum. The trainer's
objective reads each reply as if it had been sampled; a reply weighs what the sampler's probability of it is.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from openclaw_rl.trainers.lessons import TermWeights
from openclaw_rl.trainers.objective import LossSums, Objective, Targets
from openclaw_rl.trainers.settings import Method, MethodSettings

VOCABULARY, LENGTH = 3, 3
REPLIES = tuple(itertools.product(range(VOCABULARY), repeat=LENGTH))
PREFIXES = tuple(prefix for size in range(LENGTH) for prefix in itertools.product(range(VOCABULARY), repeat=size))
WIDE = 1e9  # a clip that cuts nothing


@dataclass
class Rows:
    """A speaker whose hidden states are its logits."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    vocabulary: int = VOCABULARY

    def hidden(self, ids: Tensor) -> Tensor:
        raise NotImplementedError

    def logits(self, rows: Tensor) -> Tensor:
        return rows


Table = dict[tuple[int, ...], Tensor]


def table(seed: int, spread: float) -> Table:
    source = torch.Generator().manual_seed(seed)
    return {prefix: spread * torch.randn(VOCABULARY, generator=source, dtype=torch.float64) for prefix in PREFIXES}


def logp(of: Table, reply: tuple[int, ...]) -> Tensor:
    return torch.stack([of[reply[:at]].log_softmax(-1)[token] for at, token in enumerate(reply)])


def advantages(reply: tuple[int, ...]) -> Tensor:
    """Of each token behind what was said before it: some good, some bad."""
    return torch.tensor([((7 * sum(reply[:at]) + 3 * token + at) % 5) - 2.0 for at, token in enumerate(reply)]).double()


def by_enumeration(policy: Table, sampler: Table, cap: float) -> Table:
    """d/d logits of  sum_s p_old(s) sum_a min(pi(a|s), cap * pi_old(a|s)) A(s, a), to be minimised.

    Above the cap the weight stands still and log pi goes on: the gradient is cap * pi_old * A * d log pi.
    """
    leaves = {prefix: rows.clone().requires_grad_() for prefix, rows in policy.items()}
    total = torch.zeros((), dtype=torch.float64)
    for prefix in PREFIXES:
        reached = logp(sampler, prefix).sum().exp() if prefix else torch.ones((), dtype=torch.float64)
        now, old = leaves[prefix].log_softmax(-1), sampler[prefix].log_softmax(-1)
        weight = torch.minimum(now.exp(), cap * old.exp() if cap else now.exp()).detach()
        worth = torch.stack([advantages((*prefix, token))[-1] for token in range(VOCABULARY)])
        total = total - reached * (weight * now * worth).sum()
    total.backward()  # type: ignore[no-untyped-call]
    return {prefix: leaf.grad for prefix, leaf in leaves.items() if leaf.grad is not None}


def by_objective(policy: Table, sampler: Table, cap: float) -> tuple[Table, LossSums]:
    method = MethodSettings(name=Method.BINARY, kl_beta=0.0, clip_low=1.0 - 1e-12, clip_high=WIDE, tis_clip=cap)
    objective, tally = Objective(Rows(), method, 1024, Rows()), LossSums()
    found = {prefix: torch.zeros(VOCABULARY, dtype=torch.float64) for prefix in PREFIXES}
    for reply in REPLIES:
        old = logp(sampler, reply)
        targets = Targets(
            ids=torch.tensor(reply),
            logp_old=old,
            shares=TermWeights(float(old.sum().exp()), 0.0, 0.0),
            advantage=advantages(reply),
        )
        hidden = torch.stack([policy[reply[:at]] for at in range(LENGTH)])
        rows = objective.gradient(hidden, targets, tally, is_own=False)
        for at in range(LENGTH):
            found[reply[:at]] += rows[at]
    return found, tally


@pytest.mark.parametrize("cap", [0.0, 2.0, 1.0, 0.5])
@pytest.mark.parametrize("apart", [0.0, 0.3, 2.0])
def test_the_gradient_over_all_replies_is_that_of_the_truncated_expectation(cap: float, apart: float) -> None:
    sampler = table(1, 1.0)
    policy = {prefix: rows + apart * table(2, 1.0)[prefix] for prefix, rows in sampler.items()}
    found, _ = by_objective(policy, sampler, cap)
    for prefix, expected in by_enumeration(policy, sampler, cap).items():
        assert_close(found[prefix], expected, rtol=1e-9, atol=1e-12)


def test_untruncated_weights_make_the_samplers_replies_tell_of_the_policys() -> None:
    """sum_s p_old(s) sum_a pi(a|s) A(s, a): the policy's own tokens, though none of its replies was sampled."""
    sampler, policy = table(3, 1.0), table(4, 1.0)
    _, tally = by_objective(policy, sampler, 0.0)
    expected = 0.0
    for prefix in PREFIXES:
        reached = float(logp(sampler, prefix).sum().exp()) if prefix else 1.0
        for token, now in enumerate(policy[prefix].softmax(-1)):
            expected += reached * float(now * advantages((*prefix, token))[-1])
    assert tally.policy == pytest.approx(-expected, abs=1e-9)


@pytest.mark.parametrize("cap", [1.0, 2.0])
def test_truncation_is_off_by_just_what_lies_above_the_cap(cap: float) -> None:
    sampler, policy = table(5, 1.0), table(6, 1.5)
    whole, cut = (by_objective(policy, sampler, each)[1].policy for each in (0.0, cap))
    above = 0.0
    for prefix in PREFIXES:
        reached = float(logp(sampler, prefix).sum().exp()) if prefix else 1.0
        for token in range(VOCABULARY):
            now, old = (float(each[prefix].softmax(-1)[token]) for each in (policy, sampler))
            above += reached * max(0.0, now - cap * old) * float(advantages((*prefix, token))[-1])
    assert abs(above) > 1e-3
    assert cut - whole == pytest.approx(above, abs=1e-9)
