from __future__ import annotations

import pytest
from torch import tensor
from torch.testing import assert_close

from openclaw_rl.algo.advantage import ema, group_advantage, kept_advantage, prefix_advantage


def test_replies_of_a_group_are_measured_in_population_deviations() -> None:
    # mean 0.25, std sqrt(0.6875) = 0.829
    advantage = group_advantage(tensor([1.0, -1.0, 1.0, 0.0]))
    assert advantage is not None
    assert_close(advantage, tensor([0.9045, -1.5076, 0.9045, -0.3015]), rtol=0, atol=1e-4)


@pytest.mark.parametrize("rewards", [[1.0, 1.0, 1.0], [0.0, 0.0], [0.1, 0.1, 0.1], [-1.0]])
def test_a_group_that_tells_nothing_apart_carries_no_signal(rewards: list[float]) -> None:
    assert group_advantage(tensor(rewards)) is None


def test_without_shared_tokens_each_token_has_the_advantage_of_its_reply() -> None:
    rewards = tensor([1.0, -1.0, 1.0, 0.0])
    found = prefix_advantage(rewards, [3, 0, 0, 0], 0, 3)
    whole = group_advantage(rewards)
    assert found is not None and whole is not None
    assert_close(found, whole[0].expand(3), rtol=0, atol=1e-6)
    assert prefix_advantage(tensor([1.0, 1.0]), [2, 1], 0, 2) is None


def test_what_all_say_gets_no_advantage_in_sum_and_what_differs_is_compared_in_its_place() -> None:
    # Replies AB, AC, AC, D with rewards 1, 0, 0, 1: mean 0.5, std 0.5; those after A have the mean 1/3.
    replies, rewards = ("AB", "AC", "AC", "D"), tensor([1.0, 0.0, 0.0, 1.0])
    shared = [[2, 1, 1, 0], [1, 2, 2, 0], [1, 2, 2, 0], [0, 0, 0, 1]]
    found = [prefix_advantage(rewards, shared[own], own, len(reply)) for own, reply in enumerate(replies)]
    wanted = [[1.0, 4 / 3], [-1.0, -2 / 3], [-1.0, -2 / 3], [1.0]]
    for one, values in zip(found, wanted, strict=True):
        assert one is not None
        assert_close(one, tensor(values), rtol=0, atol=1e-6)
    second = [float(one[1]) for one in found[:3] if one is not None]
    assert sum(second) == pytest.approx(0.0, abs=1e-6)


def test_after_its_last_shared_token_a_reply_is_compared_with_the_last_that_shared_it() -> None:
    found = prefix_advantage(tensor([1.0, 0.0, 0.5]), [6, 2, 0], 0, 6)
    assert found is not None
    std = (tensor([1.0, 0.0, 0.5])).std(correction=0)
    assert_close(found, tensor([0.5, 0.5, 0.5, 0.5, 0.5, 0.5]) / std, rtol=0, atol=1e-6)
    longer = prefix_advantage(tensor([1.0, 0.8, 0.0]), [6, 2, 0], 0, 6)
    assert longer is not None
    std = (tensor([1.0, 0.8, 0.0])).std(correction=0)
    assert_close(longer, tensor([0.4, 0.1, 0.1, 0.1, 0.1, 0.1]) / std, rtol=0, atol=1e-6)


def test_a_baseline_follows_rewards() -> None:
    assert ema(None, 1.0, decay=0.9) == 1.0
    assert ema(1.0, -1.0, decay=0.9) == pytest.approx(0.8)


def test_what_a_grammar_left_little_of_counts_little() -> None:
    # shares of 1, 0.5 and 0.1 of the model's own distribution; one that rounding put above 1 is 1
    kept = tensor([1.0, 0.5, 0.1, 1.0]).log() + tensor([0.0, 0.0, 0.0, 1e-7])
    advantage = kept_advantage(tensor([0.9, -0.9, 0.9, 0.9]), kept)
    assert_close(advantage, tensor([0.9, -0.45, 0.09, 0.9]), rtol=0, atol=1e-7)
