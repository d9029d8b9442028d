"""The plan's memory on a GPU against what was measured: engine and trainer, one after the other, on made models.

Measured is the most by which the device's used memory grows while a process starts and works, its CUDA context and what
its allocator keeps included. The engine's cache has the size that the plan writes into its settings. Each role also
stands with its items, and with what a process with a model of no size takes, so that a constant can be found again.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from benchmarks.common import Figures, is_quick, progress
from benchmarks.gpu_model import (
    QWEN3_0_6B,
    QWEN3_1_7B,
    QWEN3_4B,
    TINY,
    Setup,
    Shape,
    Watch,
    free_unused,
    guarded,
    make_shape,
)
from benchmarks.memory import MIB, Load, learned, opened_engine, opened_trainer, served
from openclaw_rl.plan.shape import read_shape
from openclaw_rl.plan.takes import MemorySettings, ProcessMemory, policy, trainer

NARROW = Shape(768, 2304, 20, 12, 4, 64, 32_000, is_tied=False)  # 0.19 billion weights
BARE = Shape(64, 192, 1, 4, 2, 16, 512)
CASES: tuple[tuple[Shape, Load], ...] = (
    (NARROW, Load("bfloat16", context=4000, users=16, rank=8, reply=256)),
    (QWEN3_0_6B, Load("bfloat16", context=2000, users=8, rank=32, reply=256, samples=4)),
    (QWEN3_0_6B, Load("float32", context=4000, users=4, rank=8, reply=256)),
    (QWEN3_1_7B, Load("bfloat16", context=8000, users=4, rank=32, reply=256, samples=2)),
    (QWEN3_1_7B, Load("bfloat16", context=16_000, users=2, rank=8, reply=512)),
    (QWEN3_4B, Load("bfloat16", context=4000, users=8, rank=32, reply=256, samples=2)),
    (QWEN3_4B, Load("bfloat16", context=16_000, users=1, rank=32, reply=256)),
    (QWEN3_4B, Load("bfloat16", "4bit", context=4000, users=2, rank=16, reply=256)),
)
QUICK_CASES = (1, 4)
SETTLE_S = 1.0  # until the driver has taken back what an ended process held


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """Mebibytes of a process once it is up, and at most while it works."""

    loaded: float
    most: float


def plan(setup: Setup, chosen: Sequence[int] | None = None) -> Figures:
    """The cases, by number, and how far off the plan was; on a CPU a tiny model stands in, and nothing is measured."""
    usual = QUICK_CASES if is_quick() or not setup.is_gpu else range(len(CASES))
    cases = [CASES[index] for index in chosen or usual]
    bare = guarded(lambda: _bare(setup))
    found: list[Figures] = []
    for shape, load in cases:
        found.append(guarded(lambda shape=shape, load=load: _case(setup, shape, load)))  # type: ignore[misc]
        progress(json.dumps(found[-1]))
    return {"bare_mib": bare, "off": _summary(found), "cases": found}


def _bare(setup: Setup) -> Figures:
    """Mebibytes of processes whose model has no size: the CUDA context, libraries and their workspaces."""
    load = Load("bfloat16", context=128, users=1, rank=1, device=setup.device, cache_bytes=MIB)
    engine, learner = _used(setup, _made(setup, BARE), load)
    return {"engine": round(engine.most), "trainer": round(learner.most)}


def _case(setup: Setup, shape: Shape, load: Load) -> Figures:
    """Mebibytes planned and measured, and by which share the plan is off."""
    if not setup.is_gpu:
        shape, load = TINY, replace(load, context=load.context // 20, reply=32)
    model = _made(setup, shape)
    sizes = read_shape(model)
    settings = MemorySettings(
        is_gpu=True, dtype=load.dtype, weights=load.weights, users=load.users, context=load.context, rank=load.rank,
        reply=load.reply, samples=load.samples, versions=0, scopes=0,
    )  # fmt: skip
    planned = policy(sizes, settings), trainer(sizes, settings)
    cache = next(item.size for item in planned[0].items if item.name == "keys and values")
    used = _used(setup, model, replace(load, device=setup.device, cache_bytes=cache))
    figures: Figures = {"model": str(shape), "weights_m": round(sizes.total / 1e6), "load": str(load)}
    for name, role, seen in zip(("engine", "trainer"), planned, used, strict=True):
        figures[name] = _against(role, seen)
    return figures


def _against(role: ProcessMemory, seen: ProcessUse) -> Figures:
    told = role.size / MIB
    return {
        "planned_mib": round(told),
        "measured_mib": round(seen.most),
        "off_percent": round(100 * (told / seen.most - 1), 1) if seen.most else None,
        "loaded_mib": round(seen.loaded),
        "items_mib": {item.name: round(item.size / MIB, 1) for item in role.items if item.size},
    }


def _made(setup: Setup, shape: Shape) -> Path:
    """The folder of a model of this shape; that of any other is removed, since together they fill a disk."""
    if shape == setup.shape and (setup.model / "config.json").exists():
        return setup.model
    folder = setup.home / "made"
    note = folder / "shape.txt"
    if not note.exists() or note.read_text() != repr(shape):
        shutil.rmtree(folder, ignore_errors=True)
        make_shape(folder, shape, setup.device)
        note.write_text(repr(shape))
        free_unused()
    return folder


def _used(setup: Setup, model: Path, load: Load) -> tuple[ProcessUse, ProcessUse]:
    """The engine's process and then the trainer's, each alone."""

    async def engine() -> ProcessUse:
        await asyncio.sleep(SETTLE_S)
        with Watch(setup) as watch:
            async with aclosing(await opened_engine(model, load)) as held:
                loaded = watch.now_bytes()
                await served(held, load)
                if restarts := (await held.stats()).restarts:
                    raise RuntimeError(f"the engine's process died {restarts} times")
                return ProcessUse(loaded / MIB, watch.most_bytes() / MIB)

    async def learner() -> ProcessUse:
        await asyncio.sleep(SETTLE_S)
        with Watch(setup) as watch:
            async with aclosing(await opened_trainer(model, load)) as held:
                loaded = watch.now_bytes()
                report = await learned(held, load)
                progress(f"a step: {report.took_step}, {report.metrics.get('updates')} updates, {report.why}")
                return ProcessUse(loaded / MIB, watch.most_bytes() / MIB)

    return asyncio.run(engine()), asyncio.run(learner())


def _summary(cases: list[Figures]) -> Figures:
    """The median and the worst error of each role in percent, and how many are within 10."""
    found: Figures = {}
    for name in ("engine", "trainer"):
        off = [
            value
            for one in cases
            if isinstance(role := one.get(name), dict) and isinstance(value := role["off_percent"], float)
        ]
        if off:
            within = sum(abs(value) <= 10 for value in off)
            worst = max(off, key=abs)
            found[name] = {"median": median(map(abs, off)), "worst": worst, "within_10": within, "of": len(off)}
    return found
