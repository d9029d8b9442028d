"""Base weights in few bits: what the codes hold, and that engine and trainer compute the same with them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from lowbits_models import adapter_of, engine_of, recomputed, sampled, save_model, trainer_of
from torch import nn
from torch.testing import assert_close

from openclaw_rl.config import read_config
from openclaw_rl.core.sample import HintPrompt, Sample
from openclaw_rl.core.version import BASE
from openclaw_rl.engines.settings import EngineKind, EngineSettings
from openclaw_rl.errors import ConfigError
from openclaw_rl.trainers.linear import LowBitsMatmul
from openclaw_rl.weights.forms import CodePlace, LowBitsLinear, code_library, in_low_bits, joined, lower
from openclaw_rl.weights.shared import count_of

# The largest gap of a token in nats: what the number format of the products leaves, whatever the weights are held in.
BOUND = {"float32": 1e-4, "bfloat16": 0.2}
MEAN_BOUND = {"float32": 2e-5, "bfloat16": 0.03}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models")
    for kind in ("qwen3", "qwen2", "gemma"):
        save_model(folder / kind, kind)
    return folder


def test_8_bits_are_a_row_in_127_steps_of_its_largest() -> None:
    # row 0: largest 2.54, a step is 0.02, 0.55 is 27.5 steps and becomes 28; row 1: largest 127, a step is 1
    weight = torch.zeros(2, 64)
    weight[0, :3] = torch.tensor([2.54, -1.0, 0.555])
    weight[1, :3] = torch.tensor([-127.0, 3.4, 0.4])
    low = in_low_bits(weight, 8)
    assert low.codes.dtype == torch.int8 and low.bits == 8
    want = torch.zeros(2, 64)
    want[0, :3] = torch.tensor([2.54, -1.0, 0.56])
    want[1, :3] = torch.tensor([-127.0, 3.0, 0.0])
    assert_close(low.plain(torch.float32), want, rtol=0, atol=1e-5)


def test_4_bits_are_one_of_16_shares_of_the_largest_of_64() -> None:
    # NormalFloat's levels at 0, 1, -1 and 0.33791524171829224 (QLoRA, appendix E); 64 numbers share a largest
    weight = torch.zeros(1, 128)
    weight[0, :3] = torch.tensor([2.0, -2.0, 0.7])
    weight[0, 64] = 8.0
    low = in_low_bits(weight, 4)
    assert low.codes.numel() == 64 and low.scales.tolist() == [2.0, 8.0] and low.bits == 4
    want = torch.zeros(1, 128)
    want[0, :3] = torch.tensor([2.0, -2.0, 2 * 0.33791524171829224])
    want[0, 64] = 8.0
    assert_close(low.plain(torch.float32), want, rtol=0, atol=1e-6)


@pytest.mark.parametrize("bits", [8, 4])
def test_linears_computed_as_one_have_the_codes_of_each(bits: int) -> None:
    torch.manual_seed(0)
    parts = [torch.randn(size, 64) for size in (6, 3, 5)]
    whole = joined([in_low_bits(part, bits) for part in parts])
    apart = torch.cat([in_low_bits(part, bits).plain(torch.float32) for part in parts])
    assert_close(whole.plain(torch.float32), apart, rtol=0, atol=0)
    assert_close(whole.rows(6, 9).plain(torch.float32), apart[6:9], rtol=0, atol=0)


@pytest.mark.parametrize("bits", [8, 4])
def test_codes_side_by_side_are_the_same_and_one_without_a_copy(bits: int) -> None:
    torch.manual_seed(0)
    parts = [in_low_bits(torch.randn(size, 64), bits) for size in (6, 3, 5)]
    place = CodePlace(14 * 64, 14, bits, torch.device("cpu"))
    moved = [place.moved(part) for part in parts]
    whole = joined(moved)
    assert whole.codes.data_ptr() == moved[0].codes.data_ptr() and whole.scales.data_ptr() == moved[0].scales.data_ptr()
    for part, there in zip(parts, moved, strict=True):
        assert_close(there.plain(torch.float32), part.plain(torch.float32), rtol=0, atol=0)
    assert_close(whole.plain(torch.float32), joined(parts).plain(torch.float32), rtol=0, atol=0)


@pytest.mark.parametrize("bits", [8, 4])
def test_the_gradient_goes_through_the_weights_as_read_back(bits: int) -> None:
    torch.manual_seed(0)
    low = in_low_bits(torch.randn(5, 64), bits)
    rows, grad, bias = torch.randn(3, 64), torch.randn(3, 5), torch.randn(5)
    product = LowBitsMatmul(low, bias)
    assert_close(product.forward(rows), rows @ low.plain(torch.float32).T + bias, rtol=0, atol=1e-5)
    assert_close(product.backward(grad), grad @ low.plain(torch.float32), rtol=0, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 16, 17])
def test_products_in_bfloat16_are_those_of_the_weights_read_back(rows: int) -> None:
    torch.manual_seed(0)
    low = in_low_bits(torch.randn(128, 256).bfloat16(), 8)
    x, bias = torch.randn(rows, 256).bfloat16(), torch.randn(128).bfloat16()
    want = x.float() @ low.plain(torch.float32).T + bias.float()
    assert_close(low.times(x, bias).float(), want, rtol=0, atol=0.02 * float(want.abs().max()))


def test_heads_choosers_and_narrow_layers_are_left_as_they_are() -> None:
    model = nn.ModuleDict(
        {"body": nn.Linear(64, 8), "gate": nn.Linear(64, 4), "narrow": nn.Linear(63, 8), "head": nn.Linear(64, 9)}
    )
    before = count_of(model)
    lower(model, model["head"], "4bit", dtype=torch.float32, device=torch.device("cpu"))
    assert [isinstance(one, LowBitsLinear) for one in model.values()] == [True, False, False, False]
    assert count_of(model) == before
    lower(model, None, "auto", dtype=torch.float32, device=torch.device("cpu"))
    assert type(model["head"]) is nn.Linear


@pytest.mark.parametrize("kind", ["qwen3", "gemma"])  # one in the engine's lean form, one as a whole
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("weights", ["auto", "8bit", "4bit"])
def test_engine_and_trainer_agree(models: Path, tmp_path: Path, kind: str, dtype: str, weights: str) -> None:
    trainer = trainer_of(models / kind, weights, dtype)
    core = engine_of(models / kind, weights, dtype)
    adapter = adapter_of(trainer, tmp_path / "shared-1")
    gaps: list[float] = []
    for prompt, tokens, recorded in sampled(core, adapter):
        gaps += (recomputed(trainer, prompt, tokens) - torch.tensor(recorded)).abs().tolist()
    assert len(gaps) > 60
    assert max(gaps) < BOUND[dtype]
    assert sum(gaps) / len(gaps) < MEAN_BOUND[dtype]


def test_biases_survive(models: Path) -> None:
    core, trainer = engine_of(models / "qwen2", "4bit", "float32"), trainer_of(models / "qwen2", "4bit", "float32")
    for prompt, tokens, recorded in sampled(core, None, answers=2):
        assert_close(recomputed(trainer, prompt, tokens), torch.tensor(recorded), rtol=0, atol=1e-4)


def test_few_bits_change_what_is_computed(models: Path) -> None:
    full, low = (trainer_of(models / "qwen3", weights, "float32") for weights in ("auto", "4bit"))
    apart = recomputed(full, (1, 2, 3), [7, 8, 9]) - recomputed(low, (1, 2, 3), [7, 8, 9])
    assert float(apart.abs().max()) > 1e-2
    assert full.model.parameters == low.model.parameters
    assert full.model.targets() == low.model.targets()


@pytest.mark.parametrize("weights", ["8bit", "4bit"])
def test_a_step_learns_with_few_bits_and_repeats_to_the_bit(models: Path, weights: str) -> None:
    hint = HintPrompt("say the other thing", (1, 2, 3, 40, 41, 42, 43))
    logp = (-5.0, -5.0, -5.0)
    taught = Sample(
        turn="turn", session="session", user="user", prompt=(1, 2, 3), response=(10, 11, 12), logp=logp,
        mask=(True,) * 3, version=BASE, score=-1.0, hints=(hint,),
    )  # fmt: skip
    ends = []
    for _ in range(2):
        trainer = trainer_of(models / "qwen3", weights, "float32")
        report = trainer.step([taught])
        assert report.took_step
        assert report.metrics["loss_distill_last"] < 0.5 * report.metrics["loss_distill"]
        ends.append(trainer.model.weights())
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_the_trainer_takes_the_engines_bits_unless_it_has_its_own() -> None:
    assert read_config(environment={}, overrides={"engine.weights": "4bit"}).trainer.weights == "4bit"
    assert read_config(environment={}).trainer.weights == "auto"
    apart = read_config(environment={}, overrides={"engine.weights": "4bit", "trainer.weights": "auto"})
    assert apart.trainer.weights == "auto"


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be trained"):
        read_config(environment={}, overrides={"engine.weights": "8bit", "trainer.parameters": "full"})
    with pytest.raises(ConfigError, match="only the local engine"):
        replace(EngineSettings(weights="4bit"), kind=EngineKind.VLLM)
    with pytest.raises(ConfigError, match="3bit"):
        read_config(environment={}, overrides={"engine.weights": "3bit"})


def test_loading_the_library_fetches_no_kernel(tmp_path: Path) -> None:
    """bitsandbytes asks the package `kernels` for code on some CPUs: here one that would leave a mark."""
    (tmp_path / "kernels.py").write_text("open('fetched', 'w').close()\ndef get_kernel(*a, **k): raise OSError\n")
    script = (
        "import torch, sys; from openclaw_rl.weights.forms import in_low_bits; in_low_bits(torch.ones(1, 64), 4);"
        "assert 'kernels' not in sys.modules; import kernels"
    )
    path = [str(tmp_path), *sys.path]
    subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}; {script.rpartition(';')[0]}"],
        check=True, cwd=tmp_path, timeout=120,
    )  # fmt: skip
    assert not (tmp_path / "fetched").exists()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_8_bits_are_those_of_the_library(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    weight = torch.randn(64, 128).to(dtype)
    weight[3] = 0
    codes, scales, _ = code_library().int8_vectorwise_quant(weight)
    low = in_low_bits(weight, 8)
    assert_close(low.codes, codes, rtol=0, atol=0)
    assert_close(low.scales, scales.flatten(), rtol=0, atol=0)


def test_without_the_library_the_message_says_what_to_install() -> None:
    script = (
        "import sys, torch; sys.modules['bitsandbytes'] = None\n"
        "from openclaw_rl.weights.forms import in_low_bits\n"
        "from openclaw_rl.errors import ConfigError\n"
        "in_low_bits(torch.ones(1, 64), 8)\n"
        "try: in_low_bits(torch.ones(1, 64), 4)\n"
        "except ConfigError as error: print(error.problem, '|', error.fix)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert "need bitsandbytes" in done.stdout and "openclaw-rl[lowbits]" in done.stdout
