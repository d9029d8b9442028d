from __future__ import annotations

import pytest
from torch import tensor
from torch.testing import assert_close

from openclaw_rl.algo.advantage import ema, group_advantage, kept_advantage


def test_replies_of_a_group_are_measured_in_population_deviations() -> None:
    # mean 0.25, std sqrt(0.6875) = 0.829
    advantage = group_advantage(tensor([1.0, -1.0, 1.0, 0.0]))
    assert advantage is not None
    assert_close(advantage, tensor([0.9045, -1.5076, 0.9045, -0.3015]), rtol=0, atol=1e-4)


@pytest.mark.parametrize("rewards", [[1.0, 1.0, 1.0], [0.0, 0.0], [0.1, 0.1, 0.1], [-1.0]])
def test_a_group_that_tells_nothing_apart_carries_no_signal(rewards: list[float]) -> None:
    assert group_advantage(tensor(rewards)) is None


def test_a_baseline_follows_rewards() -> None:
    assert ema(None, 1.0, decay=0.9) == 1.0
    assert ema(1.0, -1.0, decay=0.9) == pytest.approx(0.8)


def test_what_a_grammar_left_little_of_counts_little() -> None:
    # shares of 1, 0.5 and 0.1 of the model's own distribution; one that rounding put above 1 is 1
    kept = tensor([1.0, 0.5, 0.1, 1.0]).log() + tensor([0.0, 0.0, 0.0, 1e-7])
    advantage = kept_advantage(tensor([0.9, -0.9, 0.9, 0.9]), kept)
    assert_close(advantage, tensor([0.9, -0.45, 0.09, 0.9]), rtol=0, atol=1e-7)
