"""How much better than expected a reply was, for several methods; those of one method are in `methods/`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def group_advantage(rewards: Tensor, *, least_spread: float = 1e-6) -> Tensor | None:
    """The advantage of each of G replies to one prompt over the others, or None if all are alike.

        A_i = (r_i - mean) / std, population std

    [G] in, [G] out. A group whose std is at most `least_spread` carries no signal. Source: arXiv 2402.03300.
    """
    spread = rewards.std(correction=0)
    if not spread > least_spread:
        return None
    return (rewards - rewards.mean()) / spread


def ema(previous: float | None, value: float, *, decay: float) -> float:
    """The exponential moving average after one more value; the value itself if it is the first."""
    return value if previous is None else decay * previous + (1.0 - decay) * value


def kept_advantage(advantage: Tensor, kept: Tensor) -> Tensor:
    """The advantage of tokens that were sampled among those a grammar allowed.

        A_t * pi_old(a_t) / mu(a_t),  mu(a) = pi_old(a) / Z on the allowed set,  log Z = kept

    Both [T]; `kept` is at most 0. The importance weight Z corrects for mu, which is not the policy's own distribution.
    """
    return advantage * kept.clamp(max=0.0).exp()
