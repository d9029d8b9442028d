"""How much better than expected a token, a reply or a hint's wording was."""

from __future__ import annotations

import torch
from torch import Tensor


def group_advantage(rewards: Tensor, *, least_spread: float = 1e-6) -> Tensor | None:
    """What each of G replies to one prompt is worth beside the others, or None where they tell nothing apart.

        A_i = (r_i - mean) / std, population std

    [G] in, [G] out. A group whose std is at most `least_spread` carries no signal. Source: arXiv 2402.03300.
    """
    spread = rewards.std(correction=0)
    if not spread > least_spread:
        return None
    return (rewards - rewards.mean()) / spread


def baseline_advantage(reward: float, baseline: float | None) -> float:
    """A single reply's reward over what rewards have been lately; the reward itself where no baseline is kept."""
    return reward if baseline is None else reward - baseline


def ema(previous: float | None, value: float, *, decay: float) -> float:
    """The exponential moving average after one more value; the value itself where it is the first."""
    return value if previous is None else decay * previous + (1.0 - decay) * value


def hindsight_advantage(logp_teacher: Tensor, logp_old: Tensor, *, clip: float = 0.0) -> Tensor:
    """How much likelier the hint makes each sampled token.

        A_t = clip(log pi_T(a_t | s_t, hint) - log pi_old(a_t | s_t), -C, C)

    Same shapes, nats, over the same sampled tokens; clip 0 is off. The caller masks. Source: arXiv 2603.10165.
    """
    advantage = logp_teacher - logp_old
    return advantage.clamp(-clip, clip) if clip > 0 else advantage


def combined_advantage(rl: Tensor | None, opd: Tensor | None, *, w_rl: float, w_opd: float) -> Tensor | None:
    """w_rl * A_rl + w_opd * A_opd, each only where its signal exists and its weight is not 0; None where neither."""
    terms = [weight * term for weight, term in ((w_rl, rl), (w_opd, opd)) if term is not None and weight != 0.0]
    if not terms:
        return None
    return terms[0] if len(terms) == 1 else torch.add(terms[0], terms[1])


def kept_advantage(advantage: Tensor, kept: Tensor) -> Tensor:
    """The advantage of tokens that were sampled among those a grammar allowed.

        A_t * pi_old(a_t) / mu(a_t),  mu(a) = pi_old(a) / Z on the allowed set,  log Z = kept

    Both [T]; `kept` is at most 0. The importance weight Z makes up for mu being not the policy's own distribution.
    """
    return advantage * kept.clamp(max=0.0).exp()
