"""The engine's parts alone: blocks, linears, norms, pace, and the two forms of a model against each other."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from engine_models import VOCAB, ask, make_model, prompt_of, run
from torch import nn
from torch.testing import assert_close

from openclaw_rl.engines.local.adapters import AdapterPass
from openclaw_rl.engines.local.attention import folded
from openclaw_rl.engines.local.build import info_of, open_core
from openclaw_rl.engines.local.cache import Block, BlockAllocator, block_size
from openclaw_rl.engines.local.layers import Linears, equal_norm, product, replace_norms
from openclaw_rl.engines.local.pace import LEAST, Pace
from openclaw_rl.engines.settings import EngineSettings
from openclaw_rl.errors import ConfigError, ModelError


def test_blocks_are_split_joined_again_and_never_overlap() -> None:
    source, blocks, held = random.Random(1), BlockAllocator(8192, 4096), list[Block]()
    for _ in range(2000):
        if held and source.random() < 0.5:
            blocks.give(held.pop(source.randrange(len(held))))
        elif block := blocks.take(source.choice((1, 256, 300, 900, 2049))):
            held.append(block)
        spans = sorted((block.base, block.base + block.size) for block in held)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
        assert blocks.free + sum(block.size for block in held) == 8192
        assert all(block.base % block.size == 0 for block in held)
    for block in held:
        blocks.give(block)
    assert (blocks.take(4096), blocks.take(4096), blocks.take(1)) == (Block(0, 4096), Block(4096, 4096), None)


def test_an_arena_of_any_size_is_used_up_to_its_last_whole_block() -> None:
    # 2,048 + 512 + 256 of 2,900 tokens
    blocks = BlockAllocator(2900, 2048)
    assert blocks.total == 2816
    assert [blocks.take(size) for size in (2048, 512, 256, 1)] == [
        Block(0, 2048),
        Block(2048, 512),
        Block(2560, 256),
        None,
    ]
    assert [block_size(tokens) for tokens in (1, 256, 257, 10_000)] == [256, 256, 512, 16_384]


@pytest.mark.parametrize("kind", ["plain", "transposed", "packed"])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("rows", [1, 5])
def test_every_form_of_a_linear_keeps_its_bias_and_adds_to_what_it_is_given(
    kind: str, has_bias: bool, rows: int
) -> None:
    torch.manual_seed(0)
    linear, inputs, onto = nn.Linear(32, 48, bias=has_bias), torch.randn(rows, 32), torch.randn(rows, 48)
    before = onto.clone()
    with torch.inference_mode():
        form = product(kind, linear.weight.data, linear.bias.data if has_bias else None)
        assert_close(form(inputs), linear(inputs), rtol=0, atol=1e-5)
        assert_close(form(inputs, onto), linear(inputs) + onto, rtol=0, atol=1e-5)
    assert_close(onto, before, rtol=0, atol=0)


def test_linears_computed_as_one_lie_side_by_side_with_and_without_bias() -> None:
    torch.manual_seed(0)
    parts = {"a": nn.Linear(16, 8), "b": nn.Linear(16, 24, bias=False)}
    linears = Linears(AdapterPass(), may_copy=True)
    inputs = torch.randn(1, 3, 16)
    with torch.inference_mode():
        fused = linears.make("ab", parts)
        assert_close(fused(inputs), torch.cat([part(inputs) for part in parts.values()], -1), rtol=0, atol=1e-5)
    assert [(part.start, part.stop) for part in linears.parts.values()] == [(0, 8), (8, 32)]


class OddRMSNorm(nn.Module):
    """A norm that is not what its name says."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(16))
        self.eps = 1e-6

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The mean taken out first."""
        return self.weight * (inputs - inputs.mean(-1, keepdim=True))


@torch.inference_mode()
def test_norms_are_replaced_where_they_compute_the_same_and_only_there() -> None:
    from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

    torch.manual_seed(0)
    for make in (GemmaRMSNorm, Qwen3RMSNorm):
        norm = make(16, eps=1e-2)  # so large that forgetting it would show
        nn.init.normal_(norm.weight)
        fast = equal_norm(norm)
        assert fast is not None
        inputs = torch.randn(2, 5, 16) * 0.1
        assert_close(fast(inputs), norm(inputs), rtol=0, atol=1e-5)
    holder = nn.Sequential(OddRMSNorm(), Qwen3RMSNorm(16))
    assert replace_norms(holder) == 1
    assert isinstance(holder[0], OddRMSNorm)


def test_a_piece_of_prompt_is_as_long_as_the_time_it_has() -> None:
    pace = Pace(per_token=1000.0, per_pair=10.0, target_s=0.025, rate=1e6, rows_s=0.005, measured_rows=3)
    # at the start 0.02 s are 20,000 of work: 1,000 n + 5 n n = 20,000, so n = 18.3; behind 900 tokens, a tenth each
    assert pace.budget_s(3) == pytest.approx(0.02)
    assert pace.tokens(0, budget_s=0.02) == 18
    assert pace.tokens(900, budget_s=0.02) == 1
    assert pace.seconds(0, 18) == pytest.approx(18 * 1090 / 1e6)
    before = pace.rate
    pace.saw(0.045, [(0, 20)], 3)  # 22,000 of work took 0.04 s beside the rows: 550,000 a second
    assert pace.rate == pytest.approx(before - 0.7 * (1e6 - 5.5e5))


def after_steps(pace: Pace, machine: Callable[[int], float], steps: int, *, rows: int = 8) -> list[int]:
    """Tokens of prompts in each of so many steps on a machine that takes so long for rows and tokens together."""
    read = []
    for _ in range(steps):
        budget_s = pace.budget_s(rows)
        count = max(LEAST, pace.tokens(0, budget_s=budget_s)) if budget_s else 0
        pace.saw(machine(count), [(0, count)] if count else [], rows)
        read.append(count)
    return read


def test_prompts_beside_slow_rows_get_as_long_as_the_rows_take() -> None:
    pace = Pace(per_token=1000.0, per_pair=1e-6, target_s=0.025)
    # rows 0.08 s, and 0.002 s a token: as long as the rows are 40 tokens, and what the target leaves is nothing
    read = after_steps(pace, lambda count: 0.08 + 0.002 * count, 200)
    assert sorted(read[100:])[50] == pytest.approx(40, abs=8)
    assert max(read[100:]) <= 60  # so no gap is much longer than two steps of the rows
    assert pace.rows_s == pytest.approx(0.08, abs=0.01)


def test_prompts_beside_quick_rows_get_what_the_target_leaves() -> None:
    pace = Pace(per_token=1000.0, per_pair=1e-6, target_s=0.025)
    for _ in range(30):
        pace.saw(0.005, [], 8)
    read = after_steps(pace, lambda count: 0.005 + 0.0002 * count, 100)  # 0.02 s are 100 tokens
    assert sorted(read[50:])[3] >= 90 and max(read[50:]) <= 110


def test_what_prompts_get_follows_rows_that_leave_although_prompts_never_pause() -> None:
    pace = Pace(per_token=1000.0, per_pair=1e-6, target_s=0.025)
    after_steps(pace, lambda count: 0.2 + 0.002 * count, 200)
    assert pace.rows_s == pytest.approx(0.2, abs=0.02)
    read = after_steps(pace, lambda count: 0.04 + 0.002 * count, 600, rows=1)
    assert pace.rows_s == pytest.approx(0.04, abs=0.01)
    assert sorted(read[400:])[100] == pytest.approx(20, abs=6)


def test_where_each_pass_has_a_price_prompts_are_not_cut_into_the_shortest_pieces() -> None:
    # a GPU: 18 ms to launch a pass, 5 ms for recorded rows, 0.01 ms a token; then another program halves its speed
    pace = Pace(per_token=1000.0, per_pair=1e-6, target_s=0.025)
    pace.timed(8, 0.018, 1008, 0.028)
    slowness = 1.0

    def machine(count: int) -> float:
        return slowness * (0.005 if not count else 0.018 + 0.00001 * count)

    assert pace.launch / pace.rate == pytest.approx(0.018, rel=0.01)
    assert sorted(after_steps(pace, machine, 100))[50] >= 1000
    slowness = 2.0
    assert sorted(after_steps(pace, machine, 100))[50] >= 1000
    alone = Pace(per_token=1000.0, per_pair=1e-6, target_s=0.025)
    for _ in range(20):
        alone.saw(0.036, [(0, 8)], 8)
    assert alone.tokens(0, budget_s=alone.budget_s(8)) < 20  # what happens where that price is not known


def test_a_stall_is_not_taken_for_what_rows_or_prompts_cost() -> None:
    pace = Pace(per_token=1000.0, per_pair=1e-6, target_s=0.025)
    before = sorted(after_steps(pace, lambda count: 0.08 + 0.002 * count, 200)[100:])[50]
    for pieces in ([], [(0, 40)]):
        pace.saw(60.0, pieces, 8)
        assert pace.rows_s < 0.16
        after = after_steps(pace, lambda count: 0.08 + 0.002 * count, 100)
        assert sorted(after[50:])[25] == pytest.approx(before, abs=8)


@pytest.mark.parametrize("family", ["qwen3", "qwen2", "llama", "gemma", "mistral"])
def test_the_lean_form_is_taken_for_the_commonest_families(family: str, model_of: Callable[[str], Path]) -> None:
    core = open_core(EngineSettings(model=str(model_of(family)), device="cpu", cache_tokens=1024))
    assert info_of(core).linear_kernels[0] == "lean"


def test_a_model_that_only_looks_common_is_run_as_a_whole(tmp_path: Path) -> None:
    from transformers import GraniteConfig, GraniteForCausalLM

    torch.manual_seed(0)
    config = GraniteConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        residual_multiplier=0.5,
        logits_scaling=3.0,
        embedding_multiplier=2.0,
        initializer_range=0.2,
    )
    GraniteForCausalLM(config).save_pretrained(tmp_path)
    core = open_core(EngineSettings(model=str(tmp_path), device="cpu", cache_tokens=1024))
    assert info_of(core).linear_kernels[0] == "whole"
    assert len(run(core, ask(1, prompt_of(9)))[1].tokens) == 12


def test_broken_models_are_refused_with_what_to_do(tmp_path: Path, model_of: Callable[[str], Path]) -> None:
    def problem_of(model: str, **settings: int | str) -> str:
        with pytest.raises((ModelError, ConfigError)) as caught:
            open_core(EngineSettings(model=model, **settings))  # type: ignore[arg-type]
        return str(caught.value)

    assert "no model folder" in problem_of("")
    (tmp_path / "empty").mkdir()
    assert "holds no config.json" in problem_of(str(tmp_path / "empty"))
    make_model("llama", tmp_path / "cut")
    weights = tmp_path / "cut" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    assert "cannot be loaded" in problem_of(str(tmp_path / "cut"))
    weights.unlink()
    assert "cannot be loaded" in problem_of(str(tmp_path / "cut"))
    (tmp_path / "cut" / "config.json").write_text("{")
    assert "cannot be read" in problem_of(str(tmp_path / "cut"))
    assert "engine.device" in problem_of(
        str(model_of("qwen3")), device="cuda" if not torch.cuda.is_available() else "x"
    )
    assert "the cache would hold 100 tokens" in problem_of(str(model_of("qwen3")), cache_tokens=100)


def test_a_model_that_lacks_weights_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    make_model("llama", tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks 1 weights, model\.layers\.1\.mlp\.up_proj"):
        open_core(EngineSettings(model=str(tmp_path), device="cpu"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("family", ["qwen3", "gemma3", "qwen3moe"])
def test_a_gpu_samples_from_the_same_distribution(family: str, model_of: Callable[[str], Path]) -> None:
    from engine_models import off_by, plain_model

    settings = EngineSettings(model=str(model_of(family)), device="cuda", dtype="float32", cache_tokens=16384)
    answers = run(open_core(settings), *(ask(number, prompt_of(30 + number), max_tokens=40) for number in range(6)))
    for number, answer in answers.items():
        assert off_by(plain_model(model_of(family)), prompt_of(30 + number), answer) < 1e-3


def test_heads_that_share_keys_attend_the_same_when_they_are_folded_into_tokens() -> None:
    own = torch.Generator().manual_seed(0)
    query, keys, values = (torch.randn(1, heads, size, 8, generator=own) for heads, size in ((6, 5), (2, 9), (2, 9)))
    mask = torch.zeros(5, 9).masked_fill_(torch.arange(9) > torch.arange(4, 9)[:, None], float("-inf"))
    plain = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=0.3, enable_gqa=True)
    assert_close(folded(query, keys, values, mask, 0.3), plain)
