"""Surrogates, the KL term, and the means by which a batch adds up. All take per-token log-probabilities in nats."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

STRAIGHT_FROM = 2.0  # nats between the reference and the policy from which on the bounded divergence is a straight line


def policy_ratio(logp: Tensor, logp_old: Tensor) -> Tensor:
    """pi(a_t) / pi_old(a_t), pi_old being the version that sampled."""
    return (logp - logp_old).exp()


def truncated_ratio(ratio: Tensor, cap: float) -> Tensor:
    """min(ratio, cap), with the gradient of `cap * log pi` above the cap instead of none.

    Truncated importance sampling for tokens an older version drew; cap 0 is off. Source: arXiv 2505.24034.
    """
    if cap <= 0:
        return ratio
    return ratio * (cap / ratio.detach()).clamp(max=1.0)


def clipped_objective(
    logp: Tensor, logp_old: Tensor, advantage: Tensor, /, *, clip_low: float, clip_high: float, ratio_cap: float = 0.0
) -> Tensor:
    """min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A), to be maximised; same shape, the caller masks.

    `ratio_cap` truncates the ratio first. Sources: arXiv 1707.06347, clip-higher of 2503.14476.
    """
    ratio = truncated_ratio(policy_ratio(logp, logp_old), ratio_cap)
    return (ratio * advantage).minimum(ratio.clamp(1.0 - clip_low, 1.0 + clip_high) * advantage)


def is_clipped(logp: Tensor, logp_old: Tensor, advantage: Tensor, *, clip_low: float, clip_high: float) -> Tensor:
    """Which tokens the clip leaves without a gradient."""
    ratio = policy_ratio(logp, logp_old)
    return ((ratio > 1.0 + clip_high) & (advantage > 0)) | ((ratio < 1.0 - clip_low) & (advantage < 0))


def kl_k3(logp: Tensor, logp_ref: Tensor) -> Tensor:
    """An estimate of KL(pi || ref) at each sampled token that is never below 0.

    exp(d) - d - 1,  d = log ref - log pi
    """
    difference = logp_ref - logp
    return difference.expm1() - difference


def kl_bounded(logp: Tensor, logp_ref: Tensor) -> Tensor:
    """The estimate of `kl_k3` up to d = `STRAIGHT_FROM`, and from there on along its tangent: no token pulls harder.

    A token of 10 nats counts 22,000 nats by k3: an update along its gradient restores that token and nothing else.
    """
    difference = logp_ref - logp
    near = difference.clamp(max=STRAIGHT_FROM)
    return near.expm1() - near + (difference - near) * math.expm1(STRAIGHT_FROM)


def kl_weighed(logp: Tensor, logp_ref: Tensor) -> Tensor:
    """The estimate of `kl_k3` for tokens that the reference sampled, or a policy near it, and not pi itself.

    min(1, exp(-d)) * (exp(d) - d - 1),  d = log ref - log pi

    exp(-d) is the token's importance weight. Without it, a token that pi hardly ever says any more counts exp(d) nats,
    though it adds nothing to the divergence; above 1 it is cut. Source: the unbiased estimate of arXiv 2512.02556.
    """
    difference = logp_ref - logp
    likelier, rarer = difference.clamp(max=0.0), difference.clamp(min=0.0)  # one of them is 0; exp(d) could overflow
    return (likelier.expm1() - likelier) - (rarer.neg().expm1() + rarer * rarer.neg().exp())


def token_mean(values: Tensor, mask: Tensor) -> Tensor:
    """The mean over all masked tokens of the batch, each weighing the same; 0 if there are none. Both [B, T]."""
    return (values * mask).sum() / mask.sum().clamp(min=1)


def sequence_mean(values: Tensor, mask: Tensor) -> Tensor:
    """The mean of the sequences' own means, over those with a masked token; 0 if there are none. Both [B, T]."""
    counts = mask.sum(-1)
    means = (values * mask).sum(-1) / counts.clamp(min=1)
    return means.sum() / (counts > 0).sum().clamp(min=1)
