"""The method `opd`, on-policy distillation in hindsight: how a hint rates each sampled token.

    loss = -mean_t min(r_t A_t, clip(r_t, 1 - clip_low, 1 + clip_high) A_t) + kl_beta * mean_t k3_t
    A_t  = clip(log pi_T(a_t | s_t, hint) - log pi_old(a_t | s_t), -C, C)

pi_T is the teacher, which reads the hint; pi_old the version that sampled, which did not. r_t is as in `binary`. Of
several hints the one is used whose top tokens the policy shares most. A reply without a hint only trains the anchor.
A step makes one update. Source: arXiv 2603.10165.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openclaw_rl.algo.loss import clipped_objective
from openclaw_rl.algo.method import LossMethod, Weights
from openclaw_rl.algo.methods.combine import combined_advantage

if TYPE_CHECKING:
    from torch import Tensor


def hindsight_advantage(logp_teacher: Tensor, logp_old: Tensor, *, clip: float = 0.0) -> Tensor:
    """How much likelier the hint makes each sampled token.

        A_t = clip(log pi_T(a_t | s_t, hint) - log pi_old(a_t | s_t), -C, C)

    Same shapes, nats, over the same sampled tokens; clip 0 is off. The caller masks.
    """
    advantage = logp_teacher - logp_old
    return advantage.clamp(-clip, clip) if clip > 0 else advantage


OPD = LossMethod(Weights(rl=0.0, opd=1.0, distill=0.0), combined_advantage, clipped_objective)
