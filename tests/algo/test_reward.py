from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import tensor
from torch.testing import assert_close

from openclaw_rl.algo.reward import (
    accepts_task,
    bucketed,
    judge_precision_bound,
    judge_reward,
    promoted,
    rlanything_reward,
    standardised,
    step_rewards,
    task_move,
)
from openclaw_rl.core.episode import overlong_penalty


@pytest.mark.parametrize(("length", "penalty"), [(700, 0.0), (800, 0.0), (900, -0.5), (1000, -1.0), (1100, -1.0)])
def test_long_answers_cost_up_to_one(length: int, penalty: float) -> None:
    assert overlong_penalty(length, longest=1000, cache=200) == pytest.approx(penalty)


def test_the_best_voted_turn_stands_for_a_session_of_zeros() -> None:
    assert promoted([0, 0, 0], [-0.5, 1 / 3, 0.0]) == (1, pytest.approx(1 / 3))
    assert promoted([0, 0], [0.25, 0.25]) == (0, 0.25)  # the first of equals
    assert promoted([0, 0], [None, 0.0]) == (1, 0.0)


def test_nothing_is_promoted_where_a_turn_scored_or_nobody_voted() -> None:
    assert promoted([0, 1], [0.5, 1.0]) is None
    assert promoted([0, -1], [0.5, -1.0]) is None
    assert promoted([0, 0], [None, None]) is None
    assert promoted([], []) is None


def test_steps_are_compared_with_the_same_step_of_the_same_task() -> None:
    rewards = [1.0, -1.0, 1.0, 0.0, 0.7, 2.0, 2.0]
    keys = [("a", 0)] * 4 + [("a", 1)] + [("b", 0)] * 2
    found = standardised(bucketed(keys, rewards))
    assert found.keys() == {("a", 0), ("a", 1)}  # a constant bucket is dropped
    assert_close(found["a", 0], tensor([0.9045, -1.5076, 0.9045, -0.3015]), rtol=0, atol=1e-4)
    assert_close(found["a", 1], tensor([0.7]), rtol=0, atol=0)  # a single one stays as it is


def test_a_steps_reward_is_the_outcome_and_its_own_score() -> None:
    assert_close(step_rewards(1.0, tensor([1.0, -1.0]), coefficient=0.5), tensor([1.5, 0.5]), rtol=0, atol=0)


def test_rewards_of_policy_and_judge_are_as_published() -> None:
    votes = tensor([[1.0, 1.0, -1.0]])
    reward = rlanything_reward(1.0, votes)
    assert_close(reward, tensor([1.3333]), rtol=0, atol=1e-4)
    assert judge_reward(reward.item(), [1, -1, None]) == pytest.approx([4 / 3, -4 / 3, -2.0])


def test_the_bound_on_a_judges_precision_grows_with_its_votes() -> None:
    # mu = 1.6, m = 3: 1 - exp(-3 * 0.36 / 4) = 1 - exp(-0.27)
    assert judge_precision_bound(0.9, 0.7, 3) == pytest.approx(1 - 0.763379, abs=1e-5)
    assert judge_precision_bound(0.5, 0.5, 100) == 0.0
    assert judge_precision_bound(0.2, 0.1, 100) == 0.0


@settings(deadline=None)
@given(st.floats(0.5, 1.0), st.floats(0.5, 1.0), st.integers(1, 64))
def test_the_bound_is_a_probability_and_more_votes_never_lower_it(positive: float, negative: float, votes: int) -> None:
    bound = judge_precision_bound(positive, negative, votes)
    assert 0.0 <= bound <= judge_precision_bound(positive, negative, votes + 1) < 1.0


def test_tasks_move_towards_the_middle() -> None:
    assert [task_move(share) for share in (0.81, 0.8, 0.5, 0.2, 0.19)] == [1, 0, 0, 0, -1]


def test_a_task_is_replaced_only_by_one_that_was_tried_and_went_the_right_way() -> None:
    assert accepts_task(1, 0.9, 0.6)
    assert not accepts_task(1, 0.9, 0.95)
    assert not accepts_task(1, 0.9, 0.0)
    assert not accepts_task(1, 0.9, None)
    assert accepts_task(-1, 0.1, 0.3)
    assert not accepts_task(-1, 0.1, 0.05)


def test_rewards_and_keys_belong_together() -> None:
    with pytest.raises(ValueError, match="zip"):
        bucketed(["a"], [1.0, 2.0])
    assert torch.equal(bucketed(["a", "a"], [1.0, 2.0])["a"], tensor([1.0, 2.0]))
