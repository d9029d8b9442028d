"""Demonstrations that a step only learns from if what it learned from the others does not suffice for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from trainer_models import Recorder, policy_logp, settings_of

from openclaw_rl.core.adapter import StepProgress
from openclaw_rl.core.sample import HintPrompt, OtherRequestReply, Sample, SampledReply
from openclaw_rl.core.version import BASE
from openclaw_rl.trainers import checks, lora
from openclaw_rl.trainers.lessons import Lesson, check_lessons, lessons
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.settings import MethodSettings

HINT = HintPrompt("say the other thing", (1, 2, 3, 40, 41, 42, 43))
ELSEWHERE = HintPrompt("say the other thing", (4, 5, 40, 41, 42, 43))
SAID = (30, 31, 32)


def corrected(recorder: Recorder, *, sure: float) -> Sample:
    """A correction with one demonstration, and a check whose teacher gave each of its tokens this log-probability."""
    plain = recorder.sample((1, 2, 3), (10, 11, 12, 13), turn="t", score=-1.0, hints=(HINT,))
    shown = SampledReply((20, 21, 22), recorder.logp(HINT.tokens, (20, 21, 22)), BASE)
    check = OtherRequestReply((4, 5), ELSEWHERE, SampledReply(SAID, (sure,) * 3, BASE), is_check=True)
    return replace(plain, shown=(shown,), elsewhere=(check,), is_literal=True)


def check_of(sample: Sample) -> Sample:
    (held,) = check_lessons([sample], MethodSettings())
    return held.sample


def test_a_check_is_no_lesson_of_its_own(recorder: Recorder) -> None:
    sample = corrected(recorder, sure=0.0)
    assert [one.sample.response for one in lessons([sample], MethodSettings())] == [(10, 11, 12, 13), (20, 21, 22)]
    assert check_of(sample).prompt == (4, 5) and check_of(sample).response == SAID
    assert check_lessons([sample], MethodSettings(w_taught=0.0)) == []


def test_a_step_learns_from_a_check_that_it_would_answer_otherwise(trainer_model: Path, recorder: Recorder) -> None:
    sample = corrected(recorder, sure=0.0)
    found = {}
    for name, one in {"with": sample, "without": replace(sample, elsewhere=())}.items():
        trainer = LoraTrainer.open(trainer_model, settings_of())
        report = trainer.step([one])
        assert report.took_step
        found[name] = (float(policy_logp(trainer, check_of(sample)).sum()), report.metrics)
    assert (found["with"][1]["checks"], found["with"][1]["checks_missed"]) == (1.0, 1.0)
    assert (found["without"][1]["checks"], found["without"][1]["checks_missed"]) == (0.0, 0.0)
    assert found["with"][0] > found["without"][0] + 0.5
    assert found["with"][1]["updates"] > found["without"][1]["updates"]


def test_checks_are_read_again_after_those_that_were_missed_were_learned(
    trainer_model: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is mended for one may be lost for another."""
    sample = corrected(recorder, sure=0.0)
    (first,) = sample.elsewhere
    second = replace(first, prompt=(5, 4), hint=HintPrompt("say the other thing", (5, 4, 40, 41, 42, 43)))
    asked: list[list[tuple[int, ...]]] = []

    def one_after_the_other(model: object, held: Sequence[Lesson], *_: object) -> list[Lesson]:
        asked.append([one.sample.prompt for one in held])
        return list(held[:1])

    monkeypatch.setattr(lora, "missed", one_after_the_other)
    trainer = LoraTrainer.open(trainer_model, settings_of())
    two = replace(sample, elsewhere=(first, second))
    before = max(float(policy_logp(trainer, one.sample).sum()) for one in check_lessons([two], MethodSettings()))
    report = trainer.step([two])
    assert asked == [[(4, 5), (5, 4)], [(5, 4)]]
    assert (report.metrics["checks"], report.metrics["checks_missed"]) == (2.0, 2.0)
    learned = [float(policy_logp(trainer, one.sample).sum()) for one in check_lessons([two], MethodSettings())]
    assert min(learned) > before + 0.5


def test_the_progress_of_a_step_that_goes_on_counts_on(trainer_model: Path, recorder: Recorder) -> None:
    told: list[StepProgress] = []
    report = LoraTrainer.open(trainer_model, settings_of()).step([corrected(recorder, sure=0.0)], told.append)
    made = [one.updates for one in told]
    assert made == sorted(made) and made[-1] <= report.metrics["updates"]
    assert told[-1].updates <= told[-1].most
    assert told[-1].enough > told[0].enough  # of another distance


def test_a_check_that_the_step_answers_as_its_teacher_changes_nothing(trainer_model: Path, recorder: Recorder) -> None:
    sample = corrected(recorder, sure=-50.0)  # the teacher was less sure than anyone
    weights = []
    for one in (sample, replace(sample, elsewhere=())):
        trainer = LoraTrainer.open(trainer_model, settings_of())
        report = trainer.step([one])
        assert report.metrics["checks_missed"] == 0.0
        weights.append(trainer.model.weights())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_step_that_went_on_ends_halfway_between_before_and_after(
    trainer_model: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = corrected(recorder, sure=0.0)
    ends = {}
    for part in (0.0, checks.PART, 1.0):
        monkeypatch.setattr(checks, "PART", part)
        trainer = LoraTrainer.open(trainer_model, settings_of())
        assert trainer.step([sample]).metrics["checks_missed"] == 1.0
        ends[part] = trainer.model.weights()
    before, half, after = ends[0.0], ends[0.5], ends[1.0]
    alone = LoraTrainer.open(trainer_model, settings_of())
    alone.step([replace(sample, elsewhere=())])
    assert all(torch.equal(one, before[name]) for name, one in alone.model.weights().items())
    assert any(not torch.equal(one, before[name]) for name, one in after.items())
    for name, one in half.items():
        assert torch.allclose(one, (before[name] + after[name]) / 2, rtol=1e-5, atol=1e-9)
