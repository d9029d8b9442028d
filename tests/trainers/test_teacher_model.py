"""A teacher that is another model with the same tokenizer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from trainer_models import SHAPE, Recorder, settings_of
from transformers import AutoConfig, AutoModelForCausalLM

from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import ConfigError
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.settings import Distill, Method, MethodSettings, TeacherKind, TrainerSettings
from openclaw_rl.trainers.vocabulary import vocabulary_digest

ONE = PolicyVersion("shared", 1)
PIECES = [f"piece {number}" for number in range(60)]


def give_tokenizer(folder: Path, pieces: list[str], *, as_list: bool = False) -> None:
    """A tokenizer.json with this vocabulary, and one added token behind it."""
    listed = [[piece, -1.0] for piece in pieces]
    vocabulary = listed if as_list else {piece: number for number, piece in enumerate(pieces)}
    added = [{"id": len(pieces), "content": "<end>"}]
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}, "added_tokens": added}))


def make_teacher(folder: Path, *, vocabulary: int = 64) -> Path:
    """A deeper and wider random model of another family."""
    facts = {**SHAPE, "hidden_size": 48, "num_hidden_layers": 3, "vocab_size": vocabulary}
    torch.manual_seed(11)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **facts, tie_word_embeddings=False))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.2)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory, trainer_model: Path) -> Path:
    """The tests' own model, with a tokenizer beside it."""
    folder = tmp_path_factory.mktemp("student") / "model"
    folder.mkdir()
    for path in trainer_model.iterdir():
        (folder / path.name).symlink_to(path)
    give_tokenizer(folder, PIECES)
    return folder


def taught_by(teacher: Path, name: Method = Method.OPD, **more: object) -> TrainerSettings:
    method = MethodSettings(name=name, teacher=TeacherKind.MODEL, teacher_model=str(teacher))
    return settings_of(replace(method, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize("vocabulary", [64, 72, 62])  # padded alike, more, and less
def test_the_advantage_is_what_the_other_model_says_behind_the_hint(
    student: Path, recorder: Recorder, tmp_path: Path, vocabulary: int
) -> None:
    folder = make_teacher(tmp_path / "teacher", vocabulary=vocabulary)
    give_tokenizer(folder, PIECES)
    hinted = recorder.batch()[0]
    theirs = Recorder(folder)
    with torch.no_grad():
        logits = theirs.model(input_ids=torch.tensor([hinted.hints[0].tokens + hinted.response])).logits[0]
    every = logits[len(hinted.hints[0].tokens) - 1 : -1, :64].log_softmax(-1)
    want = every.gather(-1, torch.tensor(hinted.response).unsqueeze(-1)).squeeze(-1) - torch.tensor(hinted.logp)
    trainer = LoraTrainer.open(student, taught_by(folder, clip=100.0))
    report = trainer.step([hinted])
    assert report.metrics["advantage_abs"] == pytest.approx(float(want.abs().mean()), abs=1e-4)


@pytest.mark.parametrize("form", list(Distill))
def test_distillation_goes_towards_the_other_model(
    student: Path, recorder: Recorder, tmp_path: Path, form: Distill
) -> None:
    folder = make_teacher(tmp_path / "teacher")
    give_tokenizer(folder, PIECES)
    hinted = recorder.batch()[0]
    trainer = LoraTrainer.open(student, taught_by(folder, Method.TOPK, distill=form, kl_beta=0.0))
    losses = [trainer.step([hinted]).metrics["loss"] for _ in range(8)]
    base = LoraTrainer.open(student, settings_of(MethodSettings(name=Method.TOPK, distill=form, kl_beta=0.0)))
    assert losses[-1] < losses[0]
    assert losses[0] != pytest.approx(base.step([hinted]).metrics["loss"], abs=1e-3)


def test_another_vocabulary_is_refused_with_both_digests(student: Path, tmp_path: Path) -> None:
    folder = make_teacher(tmp_path / "teacher")
    swapped = [PIECES[1], PIECES[0], *PIECES[2:]]
    give_tokenizer(folder, swapped)
    with pytest.raises(ConfigError, match="has another vocabulary") as caught:
        LoraTrainer.open(student, taught_by(folder))
    assert vocabulary_digest(folder)[:12] in str(caught.value) and vocabulary_digest(student)[:12] in str(caught.value)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"has no tokenizer\.json"):
        LoraTrainer.open(student, taught_by(folder))


def test_a_vocabulary_is_told_by_ids_and_texts_however_it_is_written(tmp_path: Path) -> None:
    digests = []
    for as_list in (False, True):
        give_tokenizer(tmp_path, PIECES, as_list=as_list)
        digests.append(vocabulary_digest(tmp_path))
    assert digests[0] == digests[1]
    give_tokenizer(tmp_path, PIECES[:-1])
    assert vocabulary_digest(tmp_path) != digests[0]


def test_a_teacher_that_is_a_model_has_a_name_and_no_other_has() -> None:
    with pytest.raises(ValueError, match="name a model"):
        MethodSettings(teacher=TeacherKind.MODEL)
    with pytest.raises(ValueError, match="name a model"):
        MethodSettings(teacher=TeacherKind.BASE, teacher_model="somewhere")
