"""The recipe runs from nothing to a folder that loads, and an interrupted run goes on as if it had not been."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

from openclaw_rl.render.template import read_template
from openclaw_rl.tiny import build, train, vocabulary
from openclaw_rl.tiny.cli import app
from openclaw_rl.tiny.corpus import sample
from openclaw_rl.tiny.train import Progress


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("built")
    ran = CliRunner().invoke(app, ["build", "--folder", str(folder), "--seed", "3", "--short"])
    assert ran.exit_code == 0, ran.output
    return folder


def test_a_short_build_leaves_a_model_that_loads_and_a_manifest(built: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(built)
    assert model.dtype == torch.float32
    assert model.generation_config.eos_token_id == AutoTokenizer.from_pretrained(built).eos_token_id
    manifest = json.loads((built / "manifest.json").read_text("utf-8"))
    assert manifest["seed"] == 3
    assert manifest["steps"] == build.SHORT.schedule.steps
    assert len(manifest["data_digest"]) == 32
    assert all(0 <= share <= 1 for share in manifest["scores"].values())
    assert not (built / "checkpoint.pt").exists()


def test_the_second_stage_begins_where_a_given_model_stands(built: Path, tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["build", "--folder", str(tmp_path), "--seed", "3", "--short", "--from", str(built)])
    assert ran.exit_code == 0, ran.output
    first, second = (json.loads((folder / "manifest.json").read_text("utf-8")) for folder in (built, tmp_path))
    assert second["second"]["steps"] == build.SHORT.second.steps
    assert second["data_digest"] == first["data_digest"]  # of the first stage, which was not run again
    assert (tmp_path / "tokenizer.json").read_bytes() == (built / "tokenizer.json").read_bytes()
    assert (tmp_path / "model.safetensors").read_bytes() != (built / "model.safetensors").read_bytes()
    assert not (tmp_path / "checkpoint.pt").exists()


class _Interrupted(Exception):
    pass


def _trained(built: Path, checkpoint: Path, *, stop_at: int | None = None) -> tuple[Progress, list[float]]:
    template = read_template(built)
    rng = Random(1)
    prose = ["ordinary text, line by line\n" * 80]
    model = train.new_model(build.SHORT.shape, 0, vocabulary.SPECIAL.index("<|im_end|>"), 0)

    def draw(easy: bool) -> train.Encoded:
        return train.encode(template.tokenizer, sample(template, prose, rng, easy=easy))

    def report(at: Progress) -> None:
        if at.step == stop_at:
            raise _Interrupted

    done = train.train(model, draw, rng, build.SHORT.schedule, checkpoint=checkpoint, report=report)
    return done, [weight.sum().item() for weight in model.parameters()]


def test_an_interrupted_training_goes_on_from_its_checkpoint_as_if_nothing_had_been(
    built: Path, tmp_path: Path
) -> None:
    whole, weights = _trained(built, tmp_path / "whole.pt")
    with pytest.raises(_Interrupted):
        _trained(built, tmp_path / "cut.pt", stop_at=3)
    resumed, again = _trained(built, tmp_path / "cut.pt")
    assert resumed.digest == whole.digest
    assert again == pytest.approx(weights, abs=1e-5)
