"""Which of several hints a reply learns from, by the tokens that policy and teacher both find likely."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


class HintGranularity(StrEnum):
    """Whether one hint is chosen for a whole reply, or one for each token."""

    SEQUENCE = "sequence"
    TOKEN = "token"


def overlap(student_top: Tensor, teacher_top: Tensor) -> Tensor:
    """How many of the student's top tokens are among the teacher's. [T, K] and [H, T, K] ids in, [H, T] counts out."""
    same = student_top.unsqueeze(0).unsqueeze(-1) == teacher_top.unsqueeze(-2)  # [H, T, K, K]
    return same.any(-1).sum(-1)


def chosen_hint(student_top: Tensor, teacher_top: Tensor, *, by: HintGranularity) -> Tensor:
    """Which hint each token learns from: h* = argmax_h sum_t |S_t and T_t^h|, or the argmax token by token.

    [T, K] and [H, T, K] ids in, [T] indexes of hints out; the first of equals. Source: arXiv 2603.10165.
    """
    counts = overlap(student_top, teacher_top)  # [H, T]
    if by is HintGranularity.SEQUENCE:
        return counts.sum(-1).argmax().expand(counts.shape[1])
    return counts.argmax(0)
