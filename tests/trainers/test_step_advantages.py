"""A step's advantage: its reward among those of the steps it is compared with, however the batch is put together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from trainer_models import Recorder, policy_logp, settings_of

from openclaw_rl.core.sample import Outcome, Peer, Sample
from openclaw_rl.testing.turns import a_sample, a_turn
from openclaw_rl.trainers.lessons import lessons, rl_advantages
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.settings import Method, MethodSettings

PEERS = (Peer("a", 1.0, None), Peer("b", 0.0, 0.5), Peer("c", 0.0, None), Peer("d", 1.0, None))


def step(turn: str, outcome: float, score: float | None = None, peers: tuple[Peer, ...] = PEERS) -> Sample:
    made = a_sample(a_turn(turn), score=score)
    return replace(made, outcome=Outcome(outcome, outcome > 0), peers=peers)


def test_outcomes_alone_are_standardised_among_all_peers_whatever_the_batch_holds() -> None:
    # outcomes 1, 0, 0, 1: mean 0.5, population std 0.5
    assert rl_advantages([step("a", 1.0)], 0.0) == pytest.approx([1.0], abs=1e-12)
    assert rl_advantages([step("c", 0.0), step("b", 0.0, 0.5)], 0.0) == pytest.approx([-1.0, -1.0], abs=1e-12)


def test_the_coefficient_weighs_a_steps_own_score() -> None:
    # rewards 1, 0 + 0.5, 0, 1: mean 0.625, deviations 0.375, -0.125, -0.625, 0.375; std = sqrt(0.6875 / 4) = 0.414578
    found = rl_advantages([step("a", 1.0), step("b", 0.0, 0.5), step("c", 0.0), step("d", 1.0)], 1.0)
    assert found == pytest.approx([0.904534, -0.301511, -1.507557, 0.904534], abs=1e-6)
    # with coefficient 2 the half-right step earns 1 as the good ones do: rewards 1, 1, 0, 1, mean 0.75, std 0.433013
    doubled = rl_advantages([step("b", 0.0, 0.5), step("c", 0.0)], 2.0)
    assert doubled == pytest.approx([0.577350, -1.732051], abs=1e-6)


def test_a_step_without_others_keeps_its_reward_and_equal_rewards_teach_nothing() -> None:
    assert rl_advantages([step("a", 0.75, peers=(Peer("a", 0.75, None),))], 1.0) == [0.75]
    alike = (Peer("a", 1.0, None), Peer("b", 0.5, 0.5))
    assert rl_advantages([step("a", 1.0, peers=alike)], 1.0) == [None]


def test_outcomes_are_learned_from_under_every_method_unless_their_weight_is_zero() -> None:
    taken = lessons([step("a", 1.0), a_sample(a_turn("chat"), score=1.0)], MethodSettings(Method.TOPK))
    assert taken[0].advantage == pytest.approx((0.904534,) * len(taken[0].trained), abs=1e-6)
    assert taken[1].advantage is None  # topk takes no score of a chat
    without = lessons([step("a", 1.0), a_sample(a_turn("chat"), score=1.0)], MethodSettings(Method.BINARY, w_outcome=0))
    assert [one.advantage for one in without] == [None, (1.0,) * len(without[1].trained)]


def test_tokens_are_compared_with_what_peers_said_at_their_place_after_the_same_beginning() -> None:
    made = replace(
        a_sample(a_turn("a"), score=None), response=(5, 6, 7, 8), logp=(-1.0,) * 4, mask=(True,) * 3 + (False,)
    )
    peers = (Peer("a", 1.0, None, 4), Peer("b", 0.0, None, 2), Peer("c", 1.0, None, 0), Peer("d", 0.0, None, 0))
    (held,) = lessons([replace(made, outcome=Outcome(1.0, True), peers=peers)], MethodSettings())
    # std 0.5; first token: mean of all 0.5; the two after it: mean of a and b, 0.5. The last token is not trained
    assert held.advantage == pytest.approx((1.0, 1.0, 1.0), abs=1e-12)
    worse = (Peer("a", 1.0, None, 4), Peer("b", 1.0, None, 2), Peer("c", 0.0, None, 0), Peer("d", 0.0, None, 0))
    (held,) = lessons([replace(made, outcome=Outcome(1.0, True), peers=worse)], MethodSettings())
    # those that begin alike are all good: only the first token made the difference
    assert held.advantage == pytest.approx((1.0, 0.0, 0.0), abs=1e-12)


def test_a_step_of_the_mean_reward_still_teaches_the_tokens_that_made_a_difference() -> None:
    made = replace(a_sample(a_turn("a"), score=None), response=(5, 6), logp=(-1.0,) * 2, mask=(True,) * 2)
    peers = (Peer("a", 0.5, None, 2), Peer("b", 1.0, None, 1), Peer("c", 0.0, None, 0))
    assert rl_advantages([replace(made, outcome=Outcome(0.5, True), peers=peers)], 1.0) == [None]
    (held,) = lessons([replace(made, outcome=Outcome(0.5, True), peers=peers)], MethodSettings())
    assert held.advantage == pytest.approx((0.0, -0.612372), abs=1e-6)  # (0.5 - 0.75) / 0.408248


def test_under_the_default_method_a_better_attempt_becomes_likelier_and_a_worse_one_less(
    trainer_model: Path, recorder: Recorder
) -> None:
    trainer = LoraTrainer.open(trainer_model, settings_of(MethodSettings()))
    _, good, bad = recorder.batch()
    peers = (Peer(good.turn, 1.0, None), Peer(bad.turn, 0.0, None))
    good = replace(good, score=None, outcome=Outcome(1.0, True), peers=peers)
    bad = replace(bad, score=None, outcome=Outcome(0.0, False), peers=peers)
    assert trainer.step([good, bad]).took_step
    assert policy_logp(trainer, good).sum() > sum(good.logp) + 0.01
    assert policy_logp(trainer, bad).sum() < sum(bad.logp) - 0.01
    alone = LoraTrainer.open(trainer_model, settings_of(MethodSettings(w_outcome=0.0)))
    assert not alone.step([good, bad]).took_step
