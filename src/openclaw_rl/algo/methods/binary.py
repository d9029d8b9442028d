"""The method `binary`: the score alone.

    loss = -mean_t min(r_t A, clip(r_t, 1 - clip_low, 1 + clip_high) A) + kl_beta * mean_t k3_t
    r_t  = min(pi(a_t) / pi_old(a_t), tis_clip)

A is one number for the whole reply: its score less the running mean of its user's scores, or, where several replies to
one prompt were scored, (r - mean) / std among them (`algo.advantage.group_advantage`). pi_old is the version that
sampled. A reply without a score only trains the anchor. A step makes one update: a score gives a direction and does
not say how far to go. Sources: arXiv 1707.06347 (the clip), 2503.14476 (clip-higher), 2402.03300 (groups).
"""

from __future__ import annotations

from openclaw_rl.algo.loss import clipped_objective
from openclaw_rl.algo.method import LossMethod, Weights
from openclaw_rl.algo.methods.combine import combined_advantage


def baseline_advantage(reward: float, baseline: float | None) -> float:
    """A single reply's reward less the running mean of rewards; the reward itself if there is no mean yet."""
    return reward if baseline is None else reward - baseline


BINARY = LossMethod(Weights(rl=1.0, opd=0.0, distill=0.0), combined_advantage, clipped_objective)
