"""Rewards: the reward of a reply, a step or a judge's vote, before it is compared with others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence

import torch
from torch import Tensor

from openclaw_rl.algo.advantage import group_advantage


def promoted(scores: Sequence[float], means: Sequence[float | None]) -> tuple[int, float] | None:
    """The turn that represents a session if all scored 0, with the mean of its votes as reward.

    None if a turn scored something, or none had votes; a reward of 0 means that only the KL term is trained.
    """
    voted = [(mean, -index) for index, mean in enumerate(means) if mean is not None]
    if any(score != 0 for score in scores) or not voted:
        return None
    mean, negative = max(voted)
    return -negative, mean


def step_rewards(outcome: float, step_scores: Tensor, *, coefficient: float) -> Tensor:
    """outcome + coefficient * step score, for each step of a rollout. [S] in, [S] out."""
    return outcome + coefficient * step_scores


def standardised(rewards: Mapping[Hashable, Tensor]) -> dict[Hashable, Tensor]:
    """Rewards of each (task, step index) bucket over population std; singletons stay raw, constant buckets go."""
    kept: dict[Hashable, Tensor] = {}
    for key, bucket in rewards.items():
        advantage = bucket if bucket.numel() == 1 else group_advantage(bucket)
        if advantage is not None:
            kept[key] = advantage
    return kept


def bucketed(keys: Sequence[Hashable], rewards: Sequence[float]) -> dict[Hashable, Tensor]:
    """Rewards by key, in the order they came."""
    lists: dict[Hashable, list[float]] = defaultdict(list)
    for key, reward in zip(keys, rewards, strict=True):
        lists[key].append(reward)
    return {key: torch.tensor(values) for key, values in lists.items()}


def rlanything_reward(outcome: float, votes: Tensor, *, weight: float = 1.0) -> Tensor:
    """R_i = O + (lambda / m) * sum_j S_ij. Votes [S, m] of a rollout's steps in, [S] out. Source: arXiv 2602.02488."""
    return outcome + weight * votes.mean(-1)


def judge_reward(reward: float, votes: Sequence[int | None], *, unparsable: float = -2.0) -> list[float]:
    """The judge's own reward for each vote: R_i * S_ij, or `unparsable` for an invalid vote."""
    return [unparsable if vote is None else reward * vote for vote in votes]


def judge_precision_bound(right_positive: float, right_negative: float, votes: int) -> float:
    """A lower bound on the share of pairs a judge orders rightly: 1 - exp(-m (mu - 1)^2 / 4), mu = p+ + p-.

    0 if mu is at most 1, a judge no better than chance.
    """
    lead = right_positive + right_negative - 1.0
    if lead <= 0:
        return 0.0
    return 1.0 - float(torch.tensor(-votes * lead * lead / 4.0, dtype=torch.float64).exp())


def task_move(success: float, *, harder_above: float = 0.8, easier_below: float = 0.2) -> int:
    """+1 if a task should become harder, -1 if easier, 0 if it is right."""
    return int(success > harder_above) - int(success < easier_below)


def accepts_task(move: int, before: float, after: float | None) -> bool:
    """Whether a rewritten task replaces its parent: it was tried, its success moved the right way and is not 0."""
    if after is None or after == 0.0:
        return False
    return after < before if move > 0 else after > before
