"""The selected form holds the policy against the version that sampled, as the formula says, computed here by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, tensor
from torch.testing import assert_close
from trainer_models import Recorder, Rows, settings_of

from openclaw_rl.core.sample import HintPrompt, Sample, SampledReply
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.trainers.lessons import TermWeights, lessons
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.objective import LossSums, Objective, Targets
from openclaw_rl.trainers.references import SelectedTokens
from openclaw_rl.trainers.settings import Method, MethodSettings

ONE, TWO = PolicyVersion("shared", 1), PolicyVersion("shared", 2)
HYBRID = MethodSettings(name=Method.HYBRID, kl_beta=0.0, subset="union")
LOW, HIGH, CAP, C, K = 0.2, 0.28, 2.0, 1.0, 4  # as the settings come


def test_ratio_weight_and_gap_are_taken_to_the_version_that_sampled() -> None:
    """One position, two tokens compared of three, every number written out."""
    policy = tensor([[0.50, 0.30, 0.20]], dtype=torch.float64).log()
    teacher = tensor([[0.60, 0.15, 0.25]], dtype=torch.float64).log()
    ids, counts = tensor([[0, 1]]), torch.ones(1, 2, dtype=torch.bool)
    old = tensor([[0.45, 0.25]], dtype=torch.float64).log()
    # w = 0.45 / 0.70 and 0.25 / 0.70; gaps ln(0.60 / 0.45) = 0.287682 and ln(0.15 / 0.25) = -0.510826;
    # ratios 0.50 / 0.45 = 1.1111 (inside the clip) and 0.30 / 0.25 = 1.2
    first = 0.45 / 0.70 * math.log(0.60 / 0.45) * (0.50 / 0.45)
    second = 0.25 / 0.70 * math.log(0.15 / 0.25) * (0.30 / 0.25)
    targets = Targets(
        tensor([0]), tensor([0.0], dtype=torch.float64), TermWeights(0.0, 1.0, 0.0), teacher=teacher,
        selected=SelectedTokens(ids, counts, old),
    )  # fmt: skip
    tally = LossSums()
    gradient = Objective(Rows(), HYBRID, 1024, Rows()).gradient(policy, targets, tally, is_own=False)
    assert tally.distill == pytest.approx(-(first + second), abs=1e-9)
    # d ratio / d logit_j = ratio * ([v = j] - p_j), and the loss is minus the sum of ratio * A
    p = [0.50, 0.30, 0.20]
    expected = [-(first * ((j == 0) - p[j]) + second * ((j == 1) - p[j])) for j in range(3)]
    assert_close(gradient, tensor([expected], dtype=torch.float64), rtol=0, atol=1e-9)


def test_a_ratio_above_the_clip_is_no_longer_pushed_up() -> None:
    policy = tensor([[0.70, 0.20, 0.10]], dtype=torch.float64).log()
    teacher = tensor([[0.80, 0.10, 0.10]], dtype=torch.float64).log()
    old = tensor([[0.40]], dtype=torch.float64).log()  # ratio 1.75 > 1.28, and the gap is positive
    held = SelectedTokens(tensor([[0]]), torch.ones(1, 1, dtype=torch.bool), old)
    targets = Targets(
        tensor([0]), tensor([0.0], dtype=torch.float64), TermWeights(0.0, 1.0, 0.0), teacher=teacher, selected=held
    )
    tally = LossSums()
    gradient = Objective(Rows(), HYBRID, 1024, Rows()).gradient(policy, targets, tally, is_own=False)
    assert tally.distill == pytest.approx(-1.28 * math.log(2.0), abs=1e-9)  # ln(0.8 / 0.4) = 0.693 < C
    assert_close(gradient, torch.zeros(1, 3, dtype=torch.float64), rtol=0, atol=1e-12)


def hinted(recorder: Recorder, version: PolicyVersion) -> Sample:
    hint = HintPrompt("say the other thing", (1, 2, 3, 40, 41, 42, 43))
    return replace(recorder.sample((1, 2, 3), (10, 11, 12, 13), hints=(hint,)), version=version)


def moved(model: Path, recorder: Recorder, folder: Path) -> LoraTrainer:
    """A trainer at version 2, with version 1 beside it; both are far from the base."""
    trainer = LoraTrainer.open(model, settings_of(HYBRID, lr=3e-2, still_norm=0.0))
    for version in (ONE, TWO):
        assert trainer.step([replace(hinted(recorder, version), response=(20, 21, 22, 23))]).took_step
        trainer.export(folder / str(version), version)
    trainer.restore(folder / str(TWO))
    return trainer


def rows_of(trainer: LoraTrainer, prompt: tuple[int, ...], response: tuple[int, ...]) -> Tensor:
    """log p of every token at each position of the response, by the trainer's weights as they are."""
    with torch.no_grad():
        hidden = trainer.model.hidden(tensor([prompt + response]))[0]
        return trainer.model.logits(hidden[len(prompt) - 1 : -1]).log_softmax(-1)


def by_hand(policy: Tensor, old: Tensor, teacher: Tensor) -> float:
    """The selected form's loss, token by token in plain numbers."""
    total = 0.0
    for at in range(len(policy)):
        mine, theirs = (rows[at].topk(K).indices.tolist() for rows in (policy, teacher))
        compared = [*mine, *(token for token in theirs if token not in mine)]
        whole = sum(math.exp(old[at][token]) for token in compared)
        for token in compared:
            gap = max(-C, min(C, float(teacher[at][token] - old[at][token])))
            worth = gap * math.exp(old[at][token]) / whole
            ratio = min(math.exp(policy[at][token] - old[at][token]), CAP)
            total += min(ratio * worth, max(1 - LOW, min(1 + HIGH, ratio)) * worth)
    return -total / len(policy)


@pytest.mark.parametrize("sampled", [BASE, ONE, TWO], ids=str)
def test_a_step_takes_its_ratios_to_the_version_that_sampled(
    trainer_model: Path, recorder: Recorder, tmp_path: Path, sampled: PolicyVersion
) -> None:
    trainer = moved(trainer_model, recorder, tmp_path)
    sample = hinted(recorder, sampled)
    policy = rows_of(trainer, sample.prompt, sample.response)
    with trainer.model.base():
        teacher = rows_of(trainer, sample.hints[0].tokens, sample.response)
        base = rows_of(trainer, sample.prompt, sample.response)
    other = LoraTrainer.open(trainer_model, settings_of(HYBRID))
    if not sampled.is_base:
        other.restore(tmp_path / str(sampled))
    old = base if sampled.is_base else rows_of(other, sample.prompt, sample.response)
    before = {name: one.clone() for name, one in trainer.model.weights().items()}
    report = trainer.step([sample])
    assert report.metrics["loss_distill"] == pytest.approx(by_hand(policy, old, teacher), abs=2e-5)
    assert report.metrics["old_logp_missing"] == 0.0
    assert report.took_step and any(not torch.equal(one, before[name]) for name, one in trainer.model.weights().items())
    if sampled != TWO:  # else both are one
        assert abs(by_hand(policy, old, teacher) - by_hand(policy, policy, teacher)) > 1e-2


def test_without_the_version_that_sampled_there_are_no_importance_weights_and_a_count_says_so(
    trainer_model: Path, recorder: Recorder, tmp_path: Path
) -> None:
    trainer = moved(trainer_model, recorder, tmp_path)
    sample = hinted(recorder, PolicyVersion("shared", 9))
    policy = rows_of(trainer, sample.prompt, sample.response)
    with trainer.model.base():
        teacher = rows_of(trainer, sample.hints[0].tokens, sample.response)
    report = trainer.step([sample])
    assert report.metrics["loss_distill"] == pytest.approx(by_hand(policy, policy, teacher), abs=2e-5)
    assert report.metrics["old_logp_missing"] == 1.0


def test_reading_another_version_leaves_the_weights_as_they_were(
    trainer_model: Path, recorder: Recorder, tmp_path: Path
) -> None:
    trainer = moved(trainer_model, recorder, tmp_path)
    weights = trainer.model.weights()
    sample = hinted(recorder, ONE)
    before = rows_of(trainer, sample.prompt, sample.response)
    with trainer._samplers._speaking_as(ONE, tmp_path / str(TWO)) as speaker:
        assert speaker is trainer.model
        inside = rows_of(trainer, sample.prompt, sample.response)
    assert float((inside - before).abs().max()) > 1e-2
    assert torch.equal(rows_of(trainer, sample.prompt, sample.response), before)
    checked = trainer.model.weights()
    assert all(torch.equal(one, checked[name]) for name, one in weights.items())


def test_in_a_step_of_several_updates_the_old_ones_stay_those_of_its_beginning(
    trainer_model: Path, recorder: Recorder
) -> None:
    """With replies that the teacher shows a step has several updates; the ratios of the served one move away from 1."""
    trainer = LoraTrainer.open(trainer_model, settings_of(HYBRID, lr=1e-2, updates=4, enough=0.0, still_norm=0.0))
    shown = (SampledReply((30, 31), (-1.0, -1.0), BASE),)
    sample = replace(hinted(recorder, BASE), shown=shown)
    selected = trainer._samplers.selected(
        lessons([sample], HYBRID), [torch.zeros(4, 32), None], is_own=lambda _: True, beside=None, is_once=False
    )
    assert selected[1] is None and selected[0] is not None
    logp = rows_of(trainer, sample.prompt, sample.response)
    assert_close(selected[0].logp_old, logp.gather(-1, selected[0].ids), rtol=0, atol=1e-6)
    assert trainer.step([sample]).metrics["updates"] > 1
