"""Learning from a teacher's distribution over a few tokens, and which of several hints to learn it under."""

from __future__ import annotations

from enum import StrEnum

import torch
from torch import Tensor

from openclaw_rl.algo.loss import clipped_objective

HALF = -0.6931471805599453  # log(1/2): below it log1p is the exact form, above it expm1
LEAST_TAIL = 1e-7  # float32 cannot tell a smaller tail from none


class Divergence(StrEnum):
    """How the distance between student and teacher is measured."""

    REVERSE = "reverse"  # KL(student || teacher): seeks a mode
    FORWARD = "forward"  # KL(teacher || student): covers
    JSD = "jsd"


class Subset(StrEnum):
    """Whose top tokens are compared. With `student` a token the student never considers cannot be taught."""

    STUDENT = "student"
    TEACHER = "teacher"
    OVERLAP = "overlap"
    UNION = "union"


class HintGranularity(StrEnum):
    """Whether one hint is chosen for a whole reply, or one for each token."""

    SEQUENCE = "sequence"
    TOKEN = "token"


def log_tail(logp_top: Tensor) -> Tensor:
    """log(1 - sum p) of what the top tokens leave over, stable for sum p -> 1. [..., K] in, [...] out."""
    total = logp_top.logsumexp(-1).clamp(max=-LEAST_TAIL)
    small = total < HALF
    # Each branch sees only arguments it is exact for: where() passes the other branch's NaN on to the gradient.
    by_log1p = torch.log1p(-torch.where(small, total, HALF).exp())
    by_expm1 = torch.log(-torch.expm1(torch.where(small, HALF, total)))
    return torch.where(small, by_log1p, by_expm1)


def with_tail(logp_top: Tensor) -> Tensor:
    """The K bins and one more for all other tokens; together they sum to 1. [..., K] in, [..., K + 1] out."""
    return torch.cat([logp_top, log_tail(logp_top).unsqueeze(-1)], dim=-1)


def bin_divergence(logp_student: Tensor, logp_teacher: Tensor, *, kind: Divergence) -> Tensor:
    """The divergence of two distributions over the same bins. Both [..., K + 1] and normalised, [...] out.

    Sources: arXiv 2601.19897, 2601.20802.
    """
    if kind is Divergence.REVERSE:
        return (logp_student.exp() * (logp_student - logp_teacher)).sum(-1)
    if kind is Divergence.FORWARD:
        return (logp_teacher.exp() * (logp_teacher - logp_student)).sum(-1)
    middle = torch.logaddexp(logp_student, logp_teacher) + HALF
    student = (logp_student.exp() * (logp_student - middle)).sum(-1)
    teacher = (logp_teacher.exp() * (logp_teacher - middle)).sum(-1)
    return 0.5 * (student + teacher)


def overlap(student_top: Tensor, teacher_top: Tensor) -> Tensor:
    """How many of the student's top tokens are among the teacher's. [T, K] and [H, T, K] ids in, [H, T] counts out."""
    same = student_top.unsqueeze(0).unsqueeze(-1) == teacher_top.unsqueeze(-2)  # [H, T, K, K]
    return same.any(-1).sum(-1)


def chosen_hint(student_top: Tensor, teacher_top: Tensor, *, by: HintGranularity) -> Tensor:
    """Which hint each token learns under: h* = argmax_h sum_t |S_t and T_t^h|, or the argmax token by token.

    [T, K] and [H, T, K] ids in, [T] indexes of hints out; the first of equals. Source: arXiv 2603.10165.
    """
    counts = overlap(student_top, teacher_top)  # [H, T]
    if by is HintGranularity.SEQUENCE:
        return counts.sum(-1).argmax().expand(counts.shape[1])
    return counts.argmax(0)


def members(student_top: Tensor, teacher_top: Tensor, *, subset: Subset) -> tuple[Tensor, Tensor]:
    """The ids to compare and which of them count. Both [T, K] ids in; [T, K] or, for a union, [T, 2K] out.

    A union holds the student's tokens first; the teacher's count where they are not among them.
    """
    among = (teacher_top.unsqueeze(-1) == student_top.unsqueeze(-2)).any(-1)  # teacher's, [T, K]
    if subset is Subset.TEACHER:
        return teacher_top, torch.ones_like(among)
    if subset is Subset.OVERLAP:
        return teacher_top, among
    if subset is Subset.STUDENT:
        return student_top, torch.ones_like(among)
    return torch.cat([student_top, teacher_top], -1), torch.cat([torch.ones_like(among), ~among], -1)


def selected_objective(
    logp: Tensor,
    logp_old: Tensor,
    logp_teacher: Tensor,
    counts: Tensor,
    *,
    clip: float,
    clip_low: float,
    clip_high: float,
    ratio_cap: float = 0.0,
) -> Tensor:
    """The clipped surrogate summed over a few tokens at each position, to be maximised. All [T, K], [T] out.

        w_v = softmax of log pi_old over those that count,  A_v = clip(log pi_T(v) - log pi_old(v), -C, C) * w_v

    pi_old is the version that sampled, and `ratio_cap` truncates the ratio to it. A position where none counts gives 0.
    Source: arXiv 2603.10165.
    """
    lowest = torch.finfo(logp_old.dtype).min
    weight = logp_old.masked_fill(~counts, lowest).softmax(-1) * counts
    gap = logp_teacher - logp_old
    advantage = (gap.clamp(-clip, clip) if clip > 0 else gap) * weight
    surrogate = clipped_objective(
        logp, logp_old, advantage, clip_low=clip_low, clip_high=clip_high, ratio_cap=ratio_cap
    )
    return surrogate.masked_fill(~counts, 0.0).sum(-1)
