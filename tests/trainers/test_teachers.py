from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from trainer_models import Recorder, settings_of

from openclaw_rl.core.sample import Sample
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.settings import Distill, Method, MethodSettings, TeacherKind

ONE = PolicyVersion("shared", 1)


def hinted_as_the_teacher_says(recorder: Recorder) -> Sample:
    """A turn whose recorded log-probabilities are the base model's behind the hint: nothing is left to learn."""
    hinted = recorder.batch()[0]
    return replace(hinted, logp=recorder.logp(hinted.hints[0].tokens, hinted.response), version=ONE)


def moved(model: Path, recorder: Recorder, teacher: TeacherKind, *, decay: float = 0.95) -> LoraTrainer:
    """A trainer a few steps away from the base."""
    method = MethodSettings(name=Method.COMBINE, w_rl=1.0, w_opd=1.0, teacher=teacher, ema_decay=decay)
    trainer = LoraTrainer.open(model, settings_of(method))
    for _ in range(5):
        trainer.step(recorder.batch())
    return trainer


def test_the_base_stays_the_teacher_however_far_the_policy_went(trainer_model: Path, recorder: Recorder) -> None:
    trainer = moved(trainer_model, recorder, TeacherKind.BASE)
    report = trainer.step([hinted_as_the_teacher_says(recorder)])
    assert report.metrics["advantage_abs"] < 1e-5


def test_a_moving_average_teaches_something_else_once_the_policy_moved(trainer_model: Path, recorder: Recorder) -> None:
    trainer = moved(trainer_model, recorder, TeacherKind.EMA, decay=0.5)
    report = trainer.step([hinted_as_the_teacher_says(recorder)])
    assert report.metrics["advantage_abs"] > 1e-2


def test_the_average_follows_the_policy_by_its_decay(trainer_model: Path, recorder: Recorder, tmp_path: Path) -> None:
    method = MethodSettings(name=Method.OPD, teacher=TeacherKind.EMA, ema_decay=0.75)
    trainer = LoraTrainer.open(trainer_model, settings_of(method))
    before = trainer.model.weights()
    trainer.step(recorder.batch())
    after = trainer.model.weights()
    trainer.export(tmp_path, ONE)
    state = load_file(tmp_path / "trainer_state.safetensors")
    for name, value in before.items():
        expected = 0.75 * value + 0.25 * after[name]
        assert float((state[f"{name}.ema"] - expected).abs().max()) < 1e-6


def distance(trainer: LoraTrainer, sample: Sample) -> float:
    """KL(policy || hinted base) over the reply's positions."""
    model = trainer.model

    def logp(prompt: tuple[int, ...]) -> torch.Tensor:
        hidden = model.hidden(torch.tensor([prompt + sample.response]))[0]
        return model.logits(hidden[len(prompt) - 1 : -1]).log_softmax(-1)

    with torch.no_grad():
        student = logp(sample.prompt)
        with model.without_adapter():
            teacher = logp(sample.hints[0].tokens)
    return float((student.exp() * (student - teacher)).sum(-1).mean())


@pytest.mark.parametrize(
    "method",
    [
        MethodSettings(name=Method.HYBRID, subset="student"),
        MethodSettings(name=Method.HYBRID, subset="teacher"),
        MethodSettings(name=Method.HYBRID, subset="overlap", top_k=16),
        MethodSettings(name=Method.HYBRID, subset="union"),
        MethodSettings(name=Method.TOPK, top_k=16),
        MethodSettings(name=Method.TOPK, top_k=16, divergence="forward"),
        MethodSettings(name=Method.TOPK, top_k=16, divergence="jsd"),
    ],
    ids=lambda method: f"{method.name}-{method.subset}-{method.divergence}",
)
def test_distillation_brings_the_policy_nearer_to_the_hinted_base(
    trainer_model: Path, recorder: Recorder, method: MethodSettings
) -> None:
    hinted = recorder.batch()[0]
    trainer = LoraTrainer.open(trainer_model, settings_of(replace(method, kl_beta=0.0)))
    before = distance(trainer, hinted)
    for _ in range(5):
        assert trainer.step([hinted]).took_step
    assert distance(trainer, hinted) < 0.9 * before


@pytest.mark.parametrize("form", list(Distill))
def test_distillation_counts_as_much_as_it_weighs(trainer_model: Path, recorder: Recorder, form: Distill) -> None:
    loss = {}
    for weight in (1.0, 2.5):
        method = MethodSettings(name=Method.HYBRID, w_distill=weight, distill=form, top_k=8)
        report = LoraTrainer.open(trainer_model, settings_of(method)).step(recorder.batch())
        loss[weight] = report.metrics["loss_distill"]
    assert abs(loss[1.0]) > 1e-4
    assert loss[2.5] == pytest.approx(2.5 * loss[1.0], rel=1e-5)
