"""The LoRA trainer on a GPU, in this process: seconds a step, and the memory it takes."""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import median

import torch

from benchmarks.common import Figures, progress
from benchmarks.gpu_model import Setup, gb
from benchmarks.train import groups, ids, sample
from openclaw_rl.core.sample import HintPrompt, Sample
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.trainers.lora import LoraTrainer
from openclaw_rl.trainers.model import CausalModel, load
from openclaw_rl.trainers.settings import Method, MethodSettings, TrainerSettings

HINT_TOKENS = 24
RANK = 16


def batch(setup: Setup) -> list[Sample]:
    """Sixteen scored replies of 311 ids behind prompts of 201, each with a hint."""
    return [_like(setup, one) for one in groups()]


def long_sample(setup: Setup) -> list[Sample]:
    """One reply of 200 ids at the end of a long conversation, corrected with a hint."""
    return [_like(setup, sample("long", ids(setup.sized(15_000, 8_300), 7), ids(200, 8), -1.0))]


def _like(setup: Setup, one: Sample) -> Sample:
    hint = HintPrompt("a hint", one.prompt + ids(HINT_TOKENS, 9))
    return replace(one, logp=(setup.usual_logp,) * len(one.response), hints=(hint,))


def settings_of(setup: Setup, method: Method) -> TrainerSettings:
    """Rank 16; all else as it comes, the anchor to the base (kl_beta 0.05) included."""
    return TrainerSettings(
        rank=RANK, alpha=2.0 * RANK, device=setup.device, dtype="bfloat16", method=MethodSettings(name=method)
    )


def train(setup: Setup) -> Figures:
    """Steps by the score alone (binary) and toward the teacher behind a hint (topk, the default), on one model."""
    binary, topk = settings_of(setup, Method.BINARY), settings_of(setup, Method.TOPK)
    began = time.perf_counter()
    model = load(setup.model, binary)
    figures: Figures = {"load_s": round(time.perf_counter() - began, 2), "loaded_gb": _allocated_gb(setup)}
    short, long = batch(setup), long_sample(setup)
    trainer = LoraTrainer(model, binary)
    figures["binary_16x512"] = steps(setup, trainer, short, repeats=3)
    figures["binary_long"] = steps(setup, trainer, long, repeats=1)
    figures["resumed"] = resumed(setup, trainer, model)
    trainer = LoraTrainer(model, topk)
    figures["topk_16x512"] = steps(setup, trainer, short, repeats=1)
    figures["topk_long"] = steps(setup, trainer, long, repeats=1)
    trainer = LoraTrainer(model, replace(binary, max_tokens_per_pass=512))
    figures["binary_16x512_in_passes_of_512"] = steps(setup, trainer, short, repeats=1)
    del trainer, model
    sparing = replace(binary, recompute_layers=True)
    trainer = LoraTrainer(load(setup.model, sparing), sparing)
    figures["binary_16x512_recomputed"] = steps(setup, trainer, short, repeats=1)
    return figures | {"rank": RANK, "kl_beta": binary.method.kl_beta, "long_tokens": len(long[0].prompt) + 200}


def steps(setup: Setup, trainer: LoraTrainer, samples: list[Sample], *, repeats: int) -> Figures:
    """The median of so many steps after one that does not count, and the memory at their highest."""
    if setup.is_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    seconds: list[float] = []
    metrics: dict[str, float] = {}
    for _ in range(repeats + 1):
        began = time.perf_counter()
        report = trainer.step(samples)
        if setup.is_gpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
        if not report.took_step:
            raise RuntimeError(f"no step was taken: {report.why}")
        metrics = report.metrics
    found: Figures = {
        "step_s": round(median(seconds[1:]), 3),
        "first_step_s": round(seconds[0], 3),
        "updates": int(metrics["updates"]),
        "loss": metrics["loss"],
        "peak_allocated_gb": gb(torch.cuda.max_memory_allocated()) if setup.is_gpu else None,
        "peak_reserved_gb": gb(torch.cuda.max_memory_reserved()) if setup.is_gpu else None,
    }
    progress(f"{len(samples)} samples, {trainer_name(trainer)}: {found}")
    return found


def trainer_name(trainer: LoraTrainer) -> str:
    """How the lines of progress call it."""
    return f"{sum(parameter.numel() for _, parameter in trainer.model.named()):,} trained parameters"


def resumed(setup: Setup, trainer: LoraTrainer, model: CausalModel) -> Figures:
    """An export, and a step of another trainer from what lies on the disk, moments and all."""
    folder = setup.home / "resumed"
    began = time.perf_counter()
    trainer.export(folder, PolicyVersion(SHARED, 1))
    export_s = time.perf_counter() - began
    other = LoraTrainer(model, settings_of(setup, Method.BINARY))
    began = time.perf_counter()
    other.restore(folder)
    restore_s = time.perf_counter() - began
    report = other.step(batch(setup))
    return {"took_step": report.took_step, "export_s": round(export_s, 3), "restore_s": round(restore_s, 3)}


def _allocated_gb(setup: Setup) -> float | None:
    return gb(torch.cuda.memory_allocated()) if setup.is_gpu else None
