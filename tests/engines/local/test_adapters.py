"""Adapters that would not be computed as peft computes them are refused, and a refusal changes nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from engine_models import ask, install, off_by, plain_model, prompt_of, run, write_adapter
from safetensors.torch import load_file, save_file

from openclaw_rl.core.adapter import CONFIG, WEIGHTS, Adapter, digest_of_folder
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.engines.local.core import Core
from openclaw_rl.errors import AdapterError, EngineError

ONE = PolicyVersion("shared", 1)


@pytest.fixture
def copy_of(adapter_of: Callable[..., Adapter], tmp_path: Path) -> Callable[..., Adapter]:
    """The first adapter with its configuration and weights changed, under a digest that is true."""

    def make(change: Callable[[dict[str, torch.Tensor]], object] = lambda _: None, **config: object) -> Adapter:
        folder = tmp_path / "changed"
        shutil.copytree(adapter_of(1).folder, folder, dirs_exist_ok=True)
        facts = json.loads((folder / CONFIG).read_text())
        (folder / CONFIG).write_text(json.dumps({**facts, **config}))
        weights = load_file(folder / WEIGHTS)
        change(weights)
        save_file(weights, folder / WEIGHTS)
        return Adapter(folder, digest_of_folder(folder), ONE)

    return make


UP = "base_model.model.model.layers.1.mlp.up_proj.lora_B.weight"


DOWN = UP.replace("_B", "_A")
Weights = dict[str, torch.Tensor]


def _as_is(weights: Weights) -> None:
    pass


def _rename(weights: Weights) -> None:
    for key in (UP, DOWN):
        weights[key.replace("up_", "sideways_")] = weights.pop(key)


@pytest.mark.parametrize(
    ("problem", "change", "config"),
    [
        ("use_dora", _as_is, {"use_dora": True}),
        ("bias = 'all'", _as_is, {"bias": "all"}),
        ("modules_to_save", _as_is, {"modules_to_save": ["lm_head"]}),
        ("alpha_pattern", _as_is, {"alpha_pattern": {"q_proj": 3}}),
        ("target_parameters", _as_is, {"target_parameters": ["experts.gate_up_proj"]}),
        ("is not a LoRA adapter", _as_is, {"peft_type": "IA3"}),
        ("has r 'four'", _as_is, {"r": "four"}),
        ("has shapes", _as_is, {"r": 8}),
        ("only half of a LoRA pair", lambda weights: weights.pop(UP), {}),
        ("up_proj are missing", lambda weights: [weights.pop(UP), weights.pop(DOWN)], {}),
        ("not finite", lambda weights: weights[UP].fill_(float("inf")), {}),
        ("not finite", lambda weights: weights[UP][0].fill_(float("nan")), {}),
        ("not a linear layer", _rename, {}),
        ("not a LoRA weight", lambda weights: weights.update({"lm_head.weight": torch.zeros(2)}), {}),
    ],
)
def test_what_cannot_be_computed_as_peft_would_is_refused(
    problem: str,
    change: Callable[[Weights], object],
    config: dict[str, object],
    copy_of: Callable[..., Adapter],
    open_tiny: Callable[..., Core],
) -> None:
    core, prompt = open_tiny(), prompt_of(20)
    before = run(core, ask(1, prompt))[1]
    with pytest.raises(AdapterError, match=problem):
        install(core, copy_of(change, **config))
    assert core.adapters.versions() == []
    after = run(core, ask(1, prompt))[1]
    assert (after.tokens, after.logp) == (before.tokens, pytest.approx(before.logp, abs=1e-5))


def test_a_truncated_file_is_refused(copy_of: Callable[..., Adapter], open_tiny: Callable[..., Core]) -> None:
    adapter = copy_of()
    weights = adapter.folder / WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(AdapterError, match="digest"):
        install(open_tiny(), adapter)
    with pytest.raises(AdapterError, match="cannot be read"):
        install(open_tiny(), Adapter(adapter.folder, digest_of_folder(adapter.folder), ONE))


def test_rslora_and_some_linears_alone_are_computed_as_peft_computes_them(
    open_tiny: Callable[..., Core], model_of: Callable[[str], Path], tmp_path: Path
) -> None:
    core, prompt, model = open_tiny("llama"), prompt_of(20), model_of("llama")
    some = write_adapter(model, tmp_path / "some", ONE, rank=4, target_modules=["k_proj", "down_proj"])
    rooted = write_adapter(model, tmp_path / "rs", PolicyVersion("shared", 2), rank=6, use_rslora=True)
    ann = PolicyVersion("ann", 1)
    head = write_adapter(model, tmp_path / "head", ann, rank=2, target_modules=["lm_head", "q_proj"])
    for adapter in (some, rooted, head):
        install(core, adapter)
    answers = run(core, *(ask(row, prompt, item.version) for row, item in enumerate((some, rooted, head))))
    for row, adapter in enumerate((some, rooted, head)):
        assert off_by(plain_model(model, adapter), prompt, answers[row]) < 1e-5


def test_the_same_version_twice_is_no_error_and_with_other_weights_is_one(
    open_tiny: Callable[..., Core], adapter_of: Callable[..., Adapter]
) -> None:
    core = open_tiny(max_versions=2)
    install(core, adapter_of(1))
    install(core, adapter_of(1))
    with pytest.raises(AdapterError, match="other weights"):
        install(core, Adapter(adapter_of(2).folder, adapter_of(2).digest, ONE))
    install(core, adapter_of(2))
    with pytest.raises(EngineError, match="max_versions"):
        install(core, adapter_of(3))
    core.unload(ONE)
    install(core, adapter_of(3))
    assert [version.number for version in core.adapters.versions()] == [2, 3] or [
        version.number for version in core.adapters.versions()
    ] == [3, 2]
