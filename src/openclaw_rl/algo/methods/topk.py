"""The method `topk`, the default: the policy's distribution over next tokens moves toward the teacher's.

    loss = w_distill * mean_t D(pi_T(. | s_t, hint), pi(. | s_t)) + kl_beta * mean_t k3_t

D compares the teacher's 50 likeliest tokens one by one, and all others as one (the tail). By default it is the forward
divergence, KL(pi_T || pi), which covers all that the teacher would say. It has no advantage, no importance ratio and no
clip: the teacher's distribution says how far to go, so a step makes updates until it is near. Of several hints a
corrected reply learns from the one that objects to it most. A reply without a hint only trains the anchor. The same
distance, always forward, is used on demonstrations, which the teacher sampled itself. There its distribution is that
at `taught_temperature`.
Sources: arXiv 2601.19897, 2601.20802; a sharpened target: MixMatch, arXiv 1905.02249, section 3.2.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from openclaw_rl.algo.loss import clipped_objective
from openclaw_rl.algo.method import Distillation, HintSelection, LossMethod, LossOptions, SelectedTokens, Weights
from openclaw_rl.algo.methods.combine import combined_advantage

if TYPE_CHECKING:
    from torch import Tensor

HALF = -0.6931471805599453  # log(1/2): below it log1p is the exact form, above it expm1
LEAST_TAIL = 1e-7  # in float32 a smaller tail is the same as none
DEMONSTRATION_TOP_K = 50  # at least this many tokens are compared if the teacher sampled


class Divergence(StrEnum):
    """How the distance between student and teacher is measured."""

    REVERSE = "reverse"  # KL(student || teacher): seeks a mode
    FORWARD = "forward"  # KL(teacher || student): covers
    JSD = "jsd"


def log_tail(logp_top: Tensor) -> Tensor:
    """log(1 - sum p) of what the top tokens leave over, stable for sum p -> 1. [..., K] in, [...] out."""
    total = logp_top.logsumexp(-1).clamp(max=-LEAST_TAIL)
    small = total < HALF
    # Each branch sees only arguments it is exact for: where() passes the other branch's NaN on to the gradient.
    by_log1p = (-total.where(small, HALF).exp()).log1p()
    by_expm1 = (-total.where(~small, HALF).expm1()).log()
    return by_log1p.where(small, by_expm1)


def with_tail(logp_top: Tensor) -> Tensor:
    """The K bins and one more for all other tokens; together they sum to 1. [..., K] in, [..., K + 1] out."""
    import torch

    return torch.cat([logp_top, log_tail(logp_top).unsqueeze(-1)], dim=-1)


def bin_divergence(logp_student: Tensor, logp_teacher: Tensor, *, kind: Divergence) -> Tensor:
    """The divergence of two distributions over the same bins. Both [..., K + 1] and normalised, [...] out."""
    if kind is Divergence.REVERSE:
        return (logp_student.exp() * (logp_student - logp_teacher)).sum(-1)
    if kind is Divergence.FORWARD:
        return (logp_teacher.exp() * (logp_teacher - logp_student)).sum(-1)
    middle = logp_student.logaddexp(logp_teacher) + HALF
    student = (logp_student.exp() * (logp_student - middle)).sum(-1)
    teacher = (logp_teacher.exp() * (logp_teacher - middle)).sum(-1)
    return 0.5 * (student + teacher)


def tail_divergence(policy: Tensor, teacher: Tensor, *, top_k: int, kind: Divergence) -> Tensor:
    """The divergence over the teacher's `top_k` likeliest tokens and their tail. Both [T, V], [T] out."""
    top = teacher.topk(min(top_k, teacher.shape[-1])).indices
    return bin_divergence(with_tail(policy.gather(-1, top)), with_tail(teacher.gather(-1, top)), kind=kind)


def tail_distance(policy: Tensor, teacher: Tensor, selected: SelectedTokens | None, options: LossOptions, /) -> Tensor:
    """D at each position, [T]. It compares the teacher's tokens, so `selected` is not used."""
    return tail_divergence(policy, teacher, top_k=options.compared, kind=Divergence(options.divergence))


def demonstration_distance(policy: Tensor, teacher: Tensor, options: LossOptions) -> Tensor:
    """The forward divergence on the teacher's samples, for every method. Both [T, V], [T] out.

    The teacher's distribution is that at the temperature t at which its replies to other requests are drawn:

        pi_T(a | s)^(1/t) / sum_b pi_T(b | s)^(1/t)

    A policy that is a little less sure than the teacher was everywhere then still gives the teacher's replies; see
    docs/decisions/0054-what-the-teacher-says-in-use.md.
    """
    most = max(options.compared, DEMONSTRATION_TOP_K)
    target = (teacher / options.taught_temperature).log_softmax(-1)
    return tail_divergence(policy, target, top_k=most, kind=Divergence.FORWARD)


def literal_distance(policy: Tensor, ids: Tensor) -> Tensor:
    """-log pi(a_t | s_t) of the teacher's own tokens, where their content was checked. [T, V] and [T] in, [T] out."""
    return -policy.gather(-1, ids.unsqueeze(-1)).squeeze(-1)


TAIL = Distillation(
    top_k=50, hint_selection=HintSelection.CONTRARY, is_target=True, reads_sampler=False, distance=tail_distance
)
TOPK = LossMethod(Weights(rl=0.0, opd=0.0, distill=1.0), combined_advantage, clipped_objective, TAIL)
