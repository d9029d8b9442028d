"""The method `combine`: the score and the hint in one advantage.

    loss = -mean_t min(r_t A_t, clip(r_t, 1 - clip_low, 1 + clip_high) A_t) + kl_beta * mean_t k3_t
    A_t  = w_rl * A_rl + w_opd * A_opd,t

A_rl is the score's advantage of `binary`, A_opd the hint's of `opd`. A reply with one of the two signals learns from
that one; `binary` and `opd` are this method with one weight at 0. A step makes one update. Source: arXiv 2603.10165.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openclaw_rl.algo.loss import clipped_objective
from openclaw_rl.algo.method import LossMethod, Weights

if TYPE_CHECKING:
    from torch import Tensor


def combined_advantage(rl: Tensor | None, opd: Tensor | None, /, *, w_rl: float, w_opd: float) -> Tensor | None:
    """w_rl * A_rl + w_opd * A_opd, each only if its signal exists and its weight is not 0; None if neither."""
    terms = [weight * term for weight, term in ((w_rl, rl), (w_opd, opd)) if term is not None and weight != 0.0]
    if not terms:
        return None
    return terms[0] if len(terms) == 1 else terms[0] + terms[1]


COMBINE = LossMethod(Weights(rl=1.0, opd=1.0, distill=0.0), combined_advantage, clipped_objective)
