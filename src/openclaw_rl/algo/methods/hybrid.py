"""The method `hybrid`: the score as in `binary`, and distillation on a few selected tokens at each position.

    loss = binary's + w_distill * mean_t D_t
    D_t  = -sum_v min(r_v A_v, clip(r_v, 1 - clip_low, 1 + clip_high) A_v)      over the compared tokens v
    A_v  = clip(log pi_T(v) - log pi_old(v), -C, C) * w_v,   w_v = softmax of log pi_old over the compared tokens
    r_v  = min(pi(v) / pi_old(v), tis_clip)

pi_T is the teacher, which reads the hint; pi_old the version that sampled. By default the compared tokens are the
policy's 4 likeliest and the teacher's (`subset`). Nothing was recorded of tokens that were not sampled, so the version
that sampled is read again. Of several hints the one is used whose top tokens the policy shares most. The gap is
clipped and does not say how far to go: a step makes one update. Source: arXiv 2603.10165.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from openclaw_rl.algo.loss import clipped_objective
from openclaw_rl.algo.method import Distillation, HintSelection, LossMethod, LossOptions, SelectedTokens, Weights
from openclaw_rl.algo.methods.combine import combined_advantage

if TYPE_CHECKING:
    from torch import Tensor


class Subset(StrEnum):
    """Whose top tokens are compared. With `student` a token the student never considers cannot be taught."""

    STUDENT = "student"
    TEACHER = "teacher"
    OVERLAP = "overlap"
    UNION = "union"


def members(student_top: Tensor, teacher_top: Tensor, *, subset: Subset) -> tuple[Tensor, Tensor]:
    """The ids to compare and which of them count. Both [T, K] ids in; [T, K] or, for a union, [T, 2K] out.

    A union lists the student's tokens first; the teacher's count if they are not among them.
    """
    import torch

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
    """
    import torch

    lowest = torch.finfo(logp_old.dtype).min
    weight = logp_old.masked_fill(~counts, lowest).softmax(-1) * counts
    gap = logp_teacher - logp_old
    advantage = (gap.clamp(-clip, clip) if clip > 0 else gap) * weight
    surrogate = clipped_objective(
        logp, logp_old, advantage, clip_low=clip_low, clip_high=clip_high, ratio_cap=ratio_cap
    )
    return surrogate.masked_fill(~counts, 0.0).sum(-1)


def selected_distance(
    policy: Tensor, teacher: Tensor, selected: SelectedTokens | None, options: LossOptions, /
) -> Tensor:
    """D_t at each position. Log-probabilities [T, V] in, [T] out.

    Without `selected` the policy that is read stands for pi_old.
    """
    if selected is None:
        k, now = min(options.compared, policy.shape[-1]), policy.detach()
        ids, counts = members(now.topk(k).indices, teacher.topk(k).indices, subset=Subset(options.subset))
        selected = SelectedTokens(ids, counts, now.gather(-1, ids))
    return -selected_objective(
        policy.gather(-1, selected.ids),
        selected.logp_old,
        teacher.gather(-1, selected.ids),
        selected.counts,
        clip=options.clip,
        clip_low=options.clip_low,
        clip_high=options.clip_high,
        ratio_cap=options.tis_clip,
    )


SELECTED = Distillation(
    top_k=4, hint_selection=HintSelection.SEQUENCE, is_target=False, reads_sampler=True, distance=selected_distance
)
HYBRID = LossMethod(Weights(rl=1.0, opd=0.0, distill=1.0), combined_advantage, clipped_objective, SELECTED)
