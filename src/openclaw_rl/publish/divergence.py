"""How far two models' distributions are apart, by the likeliest tokens of each."""

from __future__ import annotations

import math
from collections.abc import Sequence

LEAST_MASS = 1e-9
Top = tuple[tuple[int, float], ...]


def divergence(candidate: Top, base: Top) -> float:
    """A lower bound of KL(candidate || base) at one position, in nats.

    Both are the likeliest (id, logp) of their model. Tokens that both name are compared one by one, those that only
    the base names as one bin, all others as another. For each token in the first bin the candidate's probability is
    known only to be at most that of its least likely named token; the value with the smallest divergence is used.
    """
    named = dict(candidate)
    shared = [(named[token], logp) for token, logp in base if token in named]
    unnamed = [math.exp(logp) for token, logp in base if token not in named]
    left = max(1.0 - sum(math.exp(logp) for logp, _ in shared), LEAST_MASS)
    base_unnamed = sum(unnamed)
    base_rest = max(1.0 - sum(math.exp(logp) for _, logp in shared) - base_unnamed, LEAST_MASS)
    most = len(unnamed) * math.exp(min(named.values(), default=0.0))
    in_unnamed = min(most, left * base_unnamed / (base_unnamed + base_rest))
    bins = [(in_unnamed, base_unnamed), (left - in_unnamed, base_rest)]
    return sum(math.exp(logp) * (logp - other) for logp, other in shared) + sum(
        mass * math.log(mass / other) for mass, other in bins if mass > 0.0
    )


def sum_of_divergence(candidate: Sequence[Top], base: Sequence[Top]) -> float:
    """The sum over positions."""
    return sum(divergence(one, other) for one, other in zip(candidate, base, strict=True))


def mean_divergence(candidate: Sequence[Top], base: Sequence[Top]) -> float:
    """The mean over positions; there is at least one."""
    return sum_of_divergence(candidate, base) / len(candidate)
