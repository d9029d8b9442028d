"""Every weight of a model trained, its base kept beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from trainer_models import Recorder, policy_logp, settings_of

from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import AdapterError
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.settings import Method, MethodSettings, TeacherKind

ONE, TWO = PolicyVersion("shared", 1), PolicyVersion("shared", 2)
FULL = settings_of(MethodSettings(name=Method.HYBRID, w_opd=1.0), parameters="full", lr=1e-3)


def test_a_step_moves_every_kind_of_weight_and_leaves_the_base(trainer_model: Path, recorder: Recorder) -> None:
    trainer = LoraTrainer.open(trainer_model, FULL)
    before = trainer.model.weights()
    first = trainer.step(recorder.batch())
    assert first.metrics["kl"] < 1e-8 and first.metrics["train_rollout_logp_gap"] < 1e-5
    moved = {name for name, one in trainer.model.weights().items() if not torch.equal(one, before[name])}
    assert moved == set(before)  # embeddings, norms, linears; the head is tied to the embeddings
    assert trainer.step(recorder.batch()).metrics["kl"] > 1e-6
    with trainer.model.base() as base:
        hinted = recorder.batch()[0]
        hidden = base.hidden(torch.tensor([hinted.prompt + hinted.response]))[0, len(hinted.prompt) - 1 : -1]
        logp = base.logits(hidden).log_softmax(-1).gather(-1, torch.tensor(hinted.response)[:, None])[:, 0]
    assert logp.tolist() == pytest.approx(list(hinted.logp), abs=1e-5)


def test_the_output_head_is_taught_too(trainer_model: Path, recorder: Recorder) -> None:
    method = MethodSettings(name=Method.BINARY, kl_beta=0.0)
    trainer = LoraTrainer.open(trainer_model, settings_of(method, parameters="full", lr=1e-3))
    before = trainer.model.weights()["model.embed_tokens.weight"]
    praised = recorder.batch()[1]
    trainer.step([praised])
    after = trainer.model.weights()["model.embed_tokens.weight"]
    never_read = sorted(set(range(64)) - {*praised.prompt, *praised.response})
    # a token that stands in no sample is moved through the head alone, which weighs it against those that do
    assert bool((after[never_read] != before[never_read]).any())
    assert policy_logp(trainer, praised).sum() > sum(praised.logp) + 0.01


def test_training_goes_on_from_a_full_version_bit_for_bit_and_back_to_the_base(
    trainer_model: Path, recorder: Recorder, tmp_path: Path
) -> None:
    trainer = LoraTrainer.open(trainer_model, FULL)
    base = trainer.model.weights()
    trainer.step(recorder.batch())
    first = trainer.export(tmp_path / "1", ONE)
    trainer.step(recorder.batch())
    second = trainer.export(tmp_path / "2", TWO)
    other = LoraTrainer.open(trainer_model, FULL)
    other.restore(first.folder)
    other.step(recorder.batch())
    assert other.export(tmp_path / "again", TWO).digest == second.digest != first.digest
    other.restore(None)
    assert all(torch.equal(one, base[name]) for name, one in other.model.weights().items())


def test_transformers_reads_an_exported_version_and_says_the_same(
    trainer_model: Path, recorder: Recorder, tmp_path: Path
) -> None:
    trainer = LoraTrainer.open(trainer_model, FULL)
    for _ in range(3):
        trainer.step(recorder.batch())
    made = trainer.export(tmp_path / "1", ONE)
    praised = recorder.batch()[1]
    theirs = torch.tensor(Recorder(made.folder).logp(praised.prompt, praised.response))
    assert float((theirs - policy_logp(trainer, praised)).abs().max()) < 1e-5
    assert float((theirs - torch.tensor(praised.logp)).abs().max()) > 1e-3


def test_a_version_of_the_other_kind_is_refused_with_what_to_do(
    trainer_model: Path, recorder: Recorder, tmp_path: Path
) -> None:
    lora = LoraTrainer.open(trainer_model, settings_of())
    adapter = lora.export(tmp_path / "lora", ONE)
    whole = LoraTrainer.open(trainer_model, FULL)
    made = whole.export(tmp_path / "full", ONE)
    with pytest.raises(AdapterError, match=r"trainer\.parameters"):
        whole.restore(adapter.folder)
    with pytest.raises(AdapterError, match=r"trainer\.parameters"):
        lora.restore(made.folder)
    with pytest.raises(AdapterError, match="cannot be based on a shared one"):
        whole.model.stand_on(lora.model.weights())


def test_what_full_training_cannot_have_is_refused() -> None:
    for more in ({"dtype": "bfloat16"}, {"method": MethodSettings(teacher=TeacherKind.EMA)}):
        with pytest.raises(ValueError, match="parameters is full"):
            settings_of(parameters="full", **more)
