"""Base weights in all, 8 and 4 bits on a GPU: recorded against recomputed log-probability, memory, and a step's time.

A model of Qwen3-1.7B's shape with a random adapter; the trainer's model is in this process.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import replace

import torch

from benchmarks.common import Figures, progress
from benchmarks.gpu_model import QWEN3_1_7B, TINY, Setup, Watch, engine_settings, free_unused, gb, guarded, make_shape
from benchmarks.lowbits import RANK, WEIGHTS, Reply, compared, policy, replies_of
from benchmarks.memory import Bits
from openclaw_rl.core.adapter import Adapter
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.engines import LocalEngine
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.model import load
from openclaw_rl.trainers.settings import TrainerSettings

CACHE_BYTES = 1 << 30  # the same for all, so that what differs is the weights


def lowbits(setup: Setup) -> Figures:
    """By bits: gaps in nats, gigabytes of the engine's process, and milliseconds a decode step of 16 streams."""
    own = replace(setup, home=setup.home / "lowbits", shape=QWEN3_1_7B if setup.is_gpu else TINY)
    made = make_shape(own.model, own.shape, own.device)
    adapter = _adapter(own)
    free_unused()
    found: Figures = {"model": str(own.shape), "parameters": made}
    for weights in WEIGHTS:
        found[weights] = guarded(lambda weights=weights: _figures(own, adapter, weights))  # type: ignore[misc]
        progress(f"{weights}: {found[weights]}")
    return found


def _figures(setup: Setup, adapter: Adapter, weights: Bits) -> Figures:
    began = time.perf_counter()
    replies, memory = asyncio.run(_sampled(setup, adapter, weights))
    full = policy(setup.model, adapter, "auto", "bfloat16", device=setup.device)
    own = full if weights == "auto" else policy(setup.model, adapter, weights, "bfloat16", device=setup.device)
    return memory | compared(full, own, replies) | {"took_s": round(time.perf_counter() - began, 1)}


async def _sampled(setup: Setup, adapter: Adapter, weights: Bits) -> tuple[list[Reply], Figures]:
    settings = replace(engine_settings(setup), weights=weights, cache_bytes=CACHE_BYTES, seed=0)
    with Watch(setup) as watch:
        async with aclosing(await LocalEngine.start(settings)) as engine:
            loaded = watch.now_bytes()
            replies = await replies_of(engine, adapter, setup.sized(32, 4))
            stats = await engine.stats()
            figures: Figures = {
                "loaded_gb": gb(loaded),
                "peak_gb": gb(watch.most_bytes()),
                "step_ms_p50": round(stats.step_ms_p50, 2),
            }
    return replies, figures


def _adapter(setup: Setup) -> Adapter:
    """Random weights that change what is said, written as the trainer writes them."""
    settings = TrainerSettings(rank=RANK, alpha=2.0 * RANK, device=setup.device, dtype="bfloat16")
    model = load(setup.model, settings)
    trainer = LoraTrainer(model, settings)
    torch.manual_seed(1)
    drawn = {name: 0.02 * torch.randn_like(one) if "lora_B" in name else one for name, one in model.weights().items()}
    model.set_weights(drawn)
    return trainer.export(setup.home / "adapter", PolicyVersion(SHARED, 1))
