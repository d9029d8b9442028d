"""Models that cannot read trees read a prompt once all the same, and come to what they come to without a cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_trees import gradient_of, outputs, readings, taught
from torch import Tensor
from trainer_models import SHAPE, Recorder, settings_of
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from openclaw_rl.trainers import batch, model, prompt_caches, recompute
from openclaw_rl.trainers.batch import ConstantPrompts, Reading, read_once
from openclaw_rl.trainers.model import CausalModel, load
from openclaw_rl.trainers.prompt_caches import PromptCaches
from openclaw_rl.trainers.settings import MethodSettings
from openclaw_rl.trainers.trees import Trees

KINDS = {"layer_types": ["linear_attention", "full_attention"]}
STATES = {key: 8 if "dim" in key else 2 for key in (
    "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim"
)}  # fmt: skip
WINDOW = {"sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"]}
FAMILIES: dict[str, dict[str, object]] = {
    "gemma2": {**SHAPE, **WINDOW, "attn_logit_softcapping": 0.5},
    "gpt_oss": {**SHAPE, **WINDOW, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_5_text": {**SHAPE, **KINDS, **STATES},
    "lfm2": {**SHAPE, "layer_types": ["conv", "full_attention"], "conv_L_cache": 3},
}


@pytest.fixture(params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    torch.manual_seed(7)
    config = AutoConfig.for_model(request.param, **FAMILIES[request.param], pad_token_id=0)
    made: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.15)
    made.float().save_pretrained(tmp_path / request.param)
    return tmp_path / request.param


def opened(folder: Path) -> CausalModel:
    found = load(folder, settings_of(MethodSettings()))
    assert found.trees is None, "this family is no case for caches"
    assert found.caches is not None
    return found


def rows_of(passes: Iterator[batch.PassOutput]) -> dict[int, Tensor]:
    return {index: one.hidden[rows] for one in passes for index, rows in one.parts}


def off(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    """The largest difference, as a share of the largest value."""
    largest = max(float(one.abs().max()) for one in wanted.values())
    return max(float((found[name] - one).abs().max()) for name, one in wanted.items()) / largest


@pytest.mark.parametrize("piece", [2048, 3])
def test_behind_a_cache_a_model_says_what_it_says_of_whole_sequences(
    folder: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(prompt_caches, "PIECE", piece)
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()
    asked = readings()
    wanted = [outputs(plain, one) for one in asked]
    heard: list[int] = []
    prompts = ConstantPrompts(opened(folder), asked, 4096, heard.append)
    for _ in range(2):  # reading behind a cache leaves it as it was
        found = rows_of(prompts.passes())
        assert all(torch.allclose(found[index], wanted[index], atol=2e-5) for index in range(len(asked)))
    fronts = {one.tokens[: at + 1] for one in asked for at in range(one.constant)}
    assert sum(heard) == len(fronts)  # each distinct token of the prompts, once
    heard.clear()
    once = read_once(opened(folder), asked, 4096, heard.append)
    assert sum(heard) == len(fronts) + sum(len(one.needed) - one.constant for one in asked)
    assert all(torch.allclose(once[index], wanted[index], atol=2e-5) for index in range(len(asked)))


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.integers(5, 7), max_size=6), min_size=1, max_size=9))
def test_what_prompts_share_is_read_once_in_whatever_order_they_come(
    trainer_model: Path, prompts: list[list[int]]
) -> None:
    plain = AutoModelForCausalLM.from_pretrained(trainer_model, dtype="float32").eval()
    caches = PromptCaches(plain)
    heard: list[int] = []
    kept = caches.kept(prompts, heard.append)
    assert sum(heard) == len({tuple(one[: at + 1]) for one in prompts for at in range(len(one))})
    for prompt, cache in zip(prompts, kept, strict=True):
        assert (cache is None) is (not prompt)
        wanted = plain.base_model(input_ids=torch.tensor([[*prompt, 9, 8]]), use_cache=False).last_hidden_state[0, -2:]
        assert torch.allclose(caches.behind(cache, (9, 8)), wanted, atol=2e-5)


def test_the_gradient_is_that_of_replies_whose_prompts_stay_as_they_are(folder: Path) -> None:
    made = opened(folder)
    made.start_anew(0)
    torch.manual_seed(1)
    with torch.no_grad():
        for layer in made.loras.values():
            layer.b.normal_(std=0.05)
    asked = [Reading((*range(10, 30), 40, 41, 42, 43), (20, 21, 22, 23)), Reading((*range(10, 25), 7, 9), (15, 16))]
    prompts = ConstantPrompts(made, asked, 4096)
    weighed = torch.randn(SHAPE["hidden_size"])

    def value() -> Tensor:
        return sum(((rows @ weighed).sum() for rows in rows_of(prompts.passes()).values()), torch.zeros(()))

    trained = [layer.b for layer in made.loras.values()]
    gradient = torch.autograd.grad(value(), trained)
    way = [torch.randn(one.shape) for one in trained]
    size = 1e-3
    ends = []
    for sign in (1, -2):
        with torch.no_grad():
            for one, step in zip(trained, way, strict=True):
                one.add_(step, alpha=sign * size)
            ends.append(float(value()))
    slope = (ends[0] - ends[1]) / (2 * size)
    told = sum(float((one * step).sum()) for one, step in zip(gradient, way, strict=True))
    assert told == pytest.approx(slope, rel=2e-2)


def test_a_step_behind_caches_is_the_step_behind_trees(
    trainer_model: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = taught(recorder)
    behind_trees = gradient_of(trainer_model, samples, prompts="constant")
    monkeypatch.setattr(Trees, "of", classmethod(lambda cls, *_: None))
    behind_caches = gradient_of(trainer_model, samples, prompts="constant")
    monkeypatch.setattr(model.PromptCaches, "of", classmethod(lambda cls, *_: None))
    apart = gradient_of(trainer_model, samples, prompts="constant")
    assert off(behind_caches, behind_trees) < 1e-4
    assert off(apart, behind_trees) > 0.01


def test_a_model_that_cannot_go_on_from_a_cache_reads_its_prompts_again(
    trainer_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Trees, "of", classmethod(lambda cls, *_: None))
    monkeypatch.setattr(prompt_caches, "_unchanged", lambda cache: None)  # reads replies without their prompts
    made = load(trainer_model, settings_of(MethodSettings()))
    assert made.caches is None
    found = rows_of(ConstantPrompts(made, readings(), 4096).passes())
    plain = AutoModelForCausalLM.from_pretrained(trainer_model, dtype="float32").eval()
    for index, one in enumerate(readings()):
        assert torch.allclose(found[index], outputs(plain, one), atol=2e-5)


def test_layers_that_are_always_computed_again_take_no_cache(folder: Path) -> None:
    assert load(folder, settings_of(MethodSettings(), recompute_layers=True)).caches is None


def test_a_long_pass_before_leaves_no_layer_that_is_computed_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, asked = opened(folder), readings()
    prompts = ConstantPrompts(made, asked, 4096)
    monkeypatch.setattr(recompute, "LONG_TOKENS", 1)
    made.hidden(torch.tensor([[5, 6, 7, 8]]))  # from now on layers are computed again, and take no cache
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()
    found = rows_of(prompts.passes())
    assert all(torch.allclose(found[index], outputs(plain, one), atol=2e-5) for index, one in enumerate(asked))
