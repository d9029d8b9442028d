"""The engine on a GPU: speed, long prompts, memory, and whether it records what transformers computes."""

from __future__ import annotations

import asyncio
import time
import warnings
from pathlib import Path
from statistics import fmean, median
from typing import Literal

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AutoModelForCausalLM

from benchmarks.common import Figures, make_model, progress, quantile
from benchmarks.gpu_decode import READ, REPEATS, WIDTHS, decode
from benchmarks.gpu_model import Setup, Watch, engine_settings, free_unused, gb, guarded
from benchmarks.peers import Ours, Theirs, ids, second_turn, stream
from openclaw_rl.core.completion import SampledToken
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.engines import LocalEngine

PEER_WIDTHS = (1, 8, 16)
NEW = 64
PEER_REPEATS = 2
MIXED = 8  # streams of which no two are alike
Dtype = Literal["float32", "bfloat16"]


def serve(setup: Setup) -> Figures:
    """Which attention is taken; then first tokens, steps and long prompts through the child process."""
    figures: Figures = {"graphs": setup.graphs, "attention": guarded(lambda: attention_kernels(setup))}
    return figures | guarded(lambda: asyncio.run(through_the_child(setup)))


async def through_the_child(setup: Setup) -> Figures:
    """As the server has it: its speed, its first tokens, and its memory with a cache as large as it likes."""
    with Watch(setup) as watch:
        began = time.perf_counter()
        engine = await LocalEngine.start(engine_settings(setup, max_rows=max(WIDTHS)))
        try:
            start_s, loaded = time.perf_counter() - began, watch.now_bytes()
            progress(f"the engine serves after {start_s:.1f} s, with {gb(loaded)} GB")
            speeds = await decode(setup, engine)
            history = setup.sized(10_000, 1000)
            turns = [await second_turn(engine, seed, history=history, more=NEW) for seed in range(REPEATS + 1)]
            stats = await engine.stats()
        finally:
            await engine.aclose()
    cold, warm = median(turn[0] for turn in turns[1:]), median(turn[1] for turn in turns[1:])
    progress(f"first token cold {cold * 1e3:.0f} ms, of the second turn {warm * 1e3:.1f} ms")
    shape = setup.shape
    token_bytes = 2 * 2 * shape.layers * shape.kv_heads * shape.head_dim
    return {
        "decode": speeds,
        "history_tokens": setup.sized(10_000, 1000),
        "cold_ttft_s": round(cold, 4),
        "first_cold_ttft_s": round(turns[0][0], 4),
        "second_turn_ttft_s": round(warm, 4),
        "step_ms_p50": round(stats.step_ms_p50, 2),
        "start_s": round(start_s, 2),
        "loaded_gb": gb(loaded),
        "peak_gb": gb(watch.most_bytes()),
        "cache_gb": gb(engine.info.cache_tokens * token_bytes),
        "cache_tokens": engine.info.cache_tokens,
        "form": engine.info.linear_kernels[0],
        "engine_restarts": stats.restarts,
    }


def against_generate(setup: Setup) -> Figures:
    """Tokens a second of the engine's core and of `generate`, both with log-probabilities, A B A B."""
    write = setup.sized(128, 16)
    ours = Ours(setup.model, device=setup.device, dtype="bfloat16")
    theirs = Theirs(setup.model, device=setup.device, dtype=torch.bfloat16)
    figures: Figures = {}
    for width in PEER_WIDTHS:
        pairs = []
        for seed in range(PEER_REPEATS + 1):
            prompts = [ids(READ, 1000 * seed + row) for row in range(width)]
            pairs.append((width * write / ours.seconds(prompts, write), width * write / theirs.seconds(prompts, write)))
        own, peer = (median(pair[place] for pair in pairs[1:]) for place in (0, 1))
        ratio = median(pair[0] / pair[1] for pair in pairs[1:])
        progress(f"width {width} in process: {own:.1f} tokens/s, generate {peer:.1f}")
        figures[str(width)] = {"tokens_per_s": round(own, 1), "generate": round(peer, 1), "ratio": round(ratio, 3)}
    return figures


def attention_kernels(setup: Setup) -> Figures:
    """Which kernel torch takes for each way the engine and the trainer attend: `math` keeps all scores in memory."""
    shape, dtype = setup.shape, torch.bfloat16
    length, group = 1000, shape.heads // shape.kv_heads

    def zeros(*size: int) -> Tensor:
        return torch.zeros(size, dtype=dtype, device=setup.device)

    def kernel(query: Tensor, keys: Tensor, mask: Tensor | None, *, is_causal: bool, is_grouped: bool) -> str:
        found = torch._fused_sdp_choice(query, keys, keys, mask, 0.0, is_causal, enable_gqa=is_grouped)
        return SDPBackend(found).name.lower()

    keys = zeros(4, shape.kv_heads, length, shape.head_dim)
    step = zeros(4, shape.kv_heads, group, shape.head_dim)
    piece = zeros(1, shape.heads, 256, shape.head_dim)
    folded = zeros(1, shape.kv_heads, 256 * group, shape.head_dim)
    whole = zeros(1, shape.heads, length, shape.head_dim)
    figures: Figures = {"training": kernel(whole, keys[:1], None, is_causal=True, is_grouped=True)}
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):  # as the engine
        return figures | {
            "decode": kernel(step, keys, None, is_causal=False, is_grouped=False),
            "decode_unlike_lengths": kernel(step, keys, zeros(4, 1, 1, length), is_causal=False, is_grouped=False),
            "prompt_first_piece": kernel(piece, keys[:1, :, :256], None, is_causal=True, is_grouped=True),
            "prompt_later_piece": kernel(
                folded, keys[:1], zeros(256 * group, length), is_causal=False, is_grouped=False
            ),
            "cudnn": torch.backends.cudnn.version() if setup.is_gpu else None,  # type: ignore[no-untyped-call]
        }


def tokens(setup: Setup) -> Figures:
    """Recorded against recomputed log-probabilities: a small model in float32, the large one in bfloat16."""
    small = make_model(setup.home / "small")
    return {
        "float32_small": guarded(lambda: exactness(setup, small, "float32")),
        "bfloat16": guarded(lambda: exactness(setup, setup.model, "bfloat16")),
    }


def exactness(setup: Setup, model: Path, dtype: Dtype) -> Figures:
    """Gaps in nats. In bfloat16 also what rounding alone makes: transformers' own gap to itself in float32."""
    asked = asyncio.run(_mixed(setup, model, dtype))
    told = [item.logp for _, items in asked for item in items]
    is_exact = dtype == "float32"
    alone = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype)).eval().to(setup.device)
    again = _recomputed(alone, asked)
    figures: Figures = {"tokens": len(told), "streams": len(asked), **_gaps(told, again)}
    if not is_exact:
        exact = _recomputed(alone.float(), asked)
        figures["against_float32"] = _gaps(told, exact)
        figures["transformers_against_float32"] = _gaps(again, exact)
    del alone
    free_unused()
    progress(f"{dtype}: {figures}")
    return figures


async def _mixed(setup: Setup, model: Path, dtype: Dtype) -> list[tuple[tuple[int, ...], list[SampledToken]]]:
    """Streams of unlike lengths and temperatures that join each other one by one."""
    engine = await LocalEngine.start(engine_settings(setup, model=model, dtype=dtype))

    async def one(row: int) -> tuple[tuple[int, ...], list[SampledToken]]:
        prompt = ids(40 + 97 * row, 700_000 + row)
        await asyncio.sleep(0.05 * row)
        heat = (1.0, 0.7, 0.0)[row % 3]
        items, _ = await stream(engine, prompt, Sampling(max_tokens=48 + 16 * row, temperature=heat, seed=row))
        return prompt, items

    try:
        return await asyncio.gather(*(one(row) for row in range(MIXED)))
    finally:
        await engine.aclose()


@torch.inference_mode()
def _recomputed(alone: torch.nn.Module, asked: list[tuple[tuple[int, ...], list[SampledToken]]]) -> list[float]:
    found: list[float] = []
    device = next(alone.parameters()).device
    for prompt, items in asked:
        said = torch.tensor([item.token for item in items], device=device)
        whole = torch.cat([torch.tensor(prompt, device=device), said])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            logits = alone(input_ids=whole[None]).logits[0, len(prompt) - 1 : -1]
        found += torch.log_softmax(logits.float(), -1).gather(1, said[:, None])[:, 0].tolist()
    return found


def _gaps(left: list[float], right: list[float]) -> dict[str, float]:
    gaps = [abs(one - other) for one, other in zip(left, right, strict=True)]
    return {"gap_mean": fmean(gaps), "gap_p99": quantile(gaps, 0.99), "gap_max": max(gaps)}
