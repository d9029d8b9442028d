"""Where a hint about style makes the teacher unsure of a token of content, the token is learned and not its doubt."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from trainer_models import Recorder, settings_of

from openclaw_rl.core import form
from openclaw_rl.core.form import LEAST_REPLIES
from openclaw_rl.core.sample import HintPrompt, OtherRequestReply, Sample, SampledReply
from openclaw_rl.core.version import BASE
from openclaw_rl.trainers import content
from openclaw_rl.trainers.content import form_ids, is_content
from openclaw_rl.trainers.lessons import lessons
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.settings import Method, MethodSettings

HINT = HintPrompt("say it otherwise", (1, 2, 3, 40, 41))


def corrected(recorder: Recorder, count: int = LEAST_REPLIES) -> Sample:
    """With demonstrations on other requests, whose first and last tokens are the same and whose middle is their own."""
    shown = [OtherRequestReply((4, 5), HINT, SampledReply((10, 20 + at, 12), (-1.0,) * 3, BASE)) for at in range(count)]
    plain = recorder.sample((1, 2, 3), (10, 11, 12), turn="corrected", hints=(HINT,))
    return replace(plain, elsewhere=tuple(shown))


def test_what_many_demonstrations_say_is_form_and_of_few_nothing_is_known(recorder: Recorder) -> None:
    method = MethodSettings(name=Method.TOPK)
    found = form_ids(lessons([corrected(recorder)], method))
    assert found is not None
    assert found.tolist() == [10, 12]
    assert form_ids(lessons([corrected(recorder, LEAST_REPLIES - 1)], method)) is None


def test_a_token_of_content_is_rare_and_certain_but_for_the_hint() -> None:
    ids, usual = torch.tensor([10, 20, 21, 22]), torch.tensor([10, 12])
    bare = torch.tensor([0.99, 0.99, 0.99, 0.9]).log()
    hinted = torch.tensor([0.3, 0.3, 0.95, 0.3]).log()
    found = is_content(ids, bare, hinted, usual)
    assert found is not None
    assert found.tolist() == [False, True, False, False]
    assert is_content(ids, bare, bare, usual) is None
    for missing in range(3):
        given = [bare, hinted, usual]
        given[missing] = None  # type: ignore[call-overload]
        assert is_content(ids, *given) is None


def gradient_of(model: Path, sample: Sample) -> list[torch.Tensor]:
    method = MethodSettings(name=Method.TOPK)
    trainer = LoraTrainer.open(model, settings_of(method, grad_clip=1e9, updates=1))
    trainer.model.set_weights({name: torch.full_like(one, 0.01) for name, one in trainer.model.weights().items()})
    assert trainer.step([sample]).took_step
    return [value for name, value in sorted(trainer.optimizer_state().items()) if name.endswith("exp_avg")]


def test_a_step_learns_such_tokens_themselves(
    trainer_model: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were all tokens such ones, the step would be that over demonstrations learned token by token."""
    sample = corrected(recorder)
    spread, literal = gradient_of(trainer_model, sample), gradient_of(trainer_model, replace(sample, is_literal=True))
    monkeypatch.setattr(content, "CERTAIN", -math.inf)
    monkeypatch.setattr(content, "DOUBTED", math.inf)
    rare = gradient_of(trainer_model, sample)
    monkeypatch.setattr(form, "FORM_SHARE", 1.0)
    every = gradient_of(trainer_model, sample)
    assert max(float((one - other).abs().max()) for one, other in zip(spread, literal, strict=True)) > 1e-5
    assert max(float((one - other).abs().max()) for one, other in zip(rare, literal, strict=True)) > 1e-6
    assert max(float((one - other).abs().max()) for one, other in zip(rare, spread, strict=True)) > 1e-6
    for one, other in zip(every, literal, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-8)
