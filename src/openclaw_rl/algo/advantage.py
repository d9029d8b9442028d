"""How much better than expected a reply was, for several methods; those of one method are in `methods/`."""

from __future__ import annotations

from collections.abc import Sequence
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


def prefix_advantage(
    rewards: Tensor, shared: Sequence[int], own: int, length: int, *, least_spread: float = 1e-6
) -> Tensor | None:
    """The advantage of each token of one of G replies to one prompt, or None if all rewards are alike.

        A_t = (r_own - mean r over N_t) / population std of r over all G,  t = 0 .. length - 1
        N_t = the replies whose first t tokens are its own; if only itself, the last N_t with another

    So tokens that all replies share up to a point get no advantage in sum, whatever follows, and the first one that
    differs is compared with what the others said in its place. `shared[i]` counts the first tokens that reply i has in
    common with reply `own`. [G] in, [length] out. If nothing is shared this is `group_advantage`. The means over
    prefixes are those of arXiv 2509.18314, which adds their differences to the whole reply's advantage.
    """
    spread = rewards.std(correction=0)
    if not spread > least_spread:
        return None
    others = [index for index in range(len(rewards)) if index != own]
    found, begins = rewards.new_empty(length), 0
    for at in sorted({shared[index] for index in others}):
        beside = [index for index in others if shared[index] >= at]  # N_t until the reply's token `at`
        found[begins:] = (rewards[own] - rewards[[own, *beside]].mean()) / spread
        begins = at + 1
    return found


def ema(previous: float | None, value: float, *, decay: float) -> float:
    """The exponential moving average after one more value; the value itself if it is the first."""
    return value if previous is None else decay * previous + (1.0 - decay) * value


def kept_advantage(advantage: Tensor, kept: Tensor) -> Tensor:
    """The advantage of tokens that were sampled among those a grammar allowed.

        A_t * pi_old(a_t) / mu(a_t),  mu(a) = pi_old(a) / Z on the allowed set,  log Z = kept

    Both [T]; `kept` is at most 0. The importance weight Z corrects for mu, which is not the policy's own distribution.
    """
    return advantage * kept.clamp(max=0.0).exp()
