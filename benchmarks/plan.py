"""The plan's memory against what was measured: engine and trainer on made models, number formats, bits and contexts.

Measured is the peak of each process's resident memory while it works, less that of the same process on a model of no
size (`benchmarks.memory`), so the plan's figures are taken without its share for the process itself. These are not the
configurations on which the plan's constants were found. With a CUDA device, `benchmarks.gpu_plan` measures there.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from statistics import median

import torch

from benchmarks.common import Figures, conditions, finish, is_quick, progress
from benchmarks.gpu_model import QWEN3_4B, Setup
from benchmarks.gpu_plan import plan
from benchmarks.memory import HINT, MIB, REPLY, Load, MadeModel, made_model, measured
from openclaw_rl.plan.shape import read_shape
from openclaw_rl.plan.takes import MemorySettings, policy, trainer, without_process

TINY = MadeModel(192, 4, 4096)
SMALL = MadeModel(384, 6, 8192)
HEADED = MadeModel(512, 10, 6000, is_tied=False)
MIDDLE = MadeModel(640, 10, 16384)
LARGE = MadeModel(1024, 9, 12288)
DEEP = MadeModel(1024, 28, 32768)  # Qwen3-0.6B's layers with fewer heads
BROAD = MadeModel(2048, 12, 32768)
WORDY = MadeModel(1536, 20, 50_000, is_tied=False)
CASES: tuple[tuple[MadeModel, Load], ...] = (
    (TINY, Load("float32", context=1024, users=4)),
    (SMALL, Load("float32", context=768, users=2)),
    (SMALL, Load("bfloat16", context=3072, users=4)),
    (HEADED, Load("float32", "8bit", context=1024, users=2)),
    (MIDDLE, Load("float32", context=512, users=2)),
    (MIDDLE, Load("bfloat16", context=1536, users=3)),
    (MIDDLE, Load("bfloat16", "4bit", context=768, users=2)),
    (LARGE, Load("bfloat16", context=1024, users=2)),
    (LARGE, Load("bfloat16", "8bit", context=2048, users=2)),
    (DEEP, Load("bfloat16", context=2048, users=4)),
    (DEEP, Load("float32", context=1024, users=2, rank=8)),
    (DEEP, Load("bfloat16", "8bit", context=1536, users=3)),
    (BROAD, Load("bfloat16", context=4096, users=2, rank=32)),
    (WORDY, Load("bfloat16", context=1024, users=8)),
    (WORDY, Load("bfloat16", "4bit", context=768, users=2)),
)


def case(place: Path, made: MadeModel, load: Load) -> Figures:
    """Mebibytes planned and measured, and by how much the plan is off."""
    model = made_model(place, made)
    shape = read_shape(model)
    settings = MemorySettings(
        is_gpu=False, dtype=load.dtype, weights=load.weights, users=load.users, context=load.context, rank=load.rank,
        reply=REPLY, samples=1, versions=0, scopes=0,
    )  # fmt: skip
    planned = [without_process(role).size / MIB for role in (policy(shape, settings), trainer(shape, settings))]
    found = measured(model, load)
    figures: Figures = {"model": str(made), "weights_m": round(shape.total / 1e6, 1), "load": str(load)}
    for name, told, seen in zip(("engine", "trainer"), planned, found, strict=True):
        figures[name] = {"planned_mib": round(told), "measured_mib": round(seen), "off": round(told / seen - 1, 3)}
    return figures


def summary(cases: list[Figures]) -> Figures:
    """The median and the worst of each process, and of both together."""
    told: Figures = {}
    for name in ("engine", "trainer", "both"):
        off = []
        for one in cases:
            parts = [one[part] for part in (("engine", "trainer") if name == "both" else (name,))]
            sums = [sum(part[key] for part in parts) for key in ("planned_mib", "measured_mib")]  # type: ignore[index]
            off.append(sums[0] / sums[1] - 1)
        worst = max(off, key=abs)
        within = sum(abs(value) <= 0.1 for value in off)
        told[name] = {
            "off_median": round(median(map(abs, off)), 3),
            "off_worst": round(worst, 3),
            "within_10_percent": within,
        }
    return told


def main() -> None:
    """Measures every case."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--cases", type=int, nargs="*", help="by number, from 0; all where none is named")
    options.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    given = options.parse_args()
    begin = time.monotonic()
    if given.device == "cuda":
        with tempfile.TemporaryDirectory(prefix="openclaw-rl-plan-") as place:
            os.environ["XDG_CACHE_HOME"] = place
            on_gpu = plan(Setup(Path(place), "cuda", QWEN3_4B), given.cases)
        finish(on_gpu | {"conditions": conditions("made", threads=1, seeds=[0], repeats=1)})
        return
    found: list[Figures] = []
    for index in given.cases or ([0, 3] if is_quick() else range(len(CASES))):
        with tempfile.TemporaryDirectory(prefix="openclaw-rl-plan-") as place:
            os.environ["XDG_CACHE_HOME"] = place  # where shared weights lie
            found.append(case(Path(place) / "model", *CASES[index]))
        progress(json.dumps(found[-1]))
    figures: Figures = summary(found) | {
        "cases": found,
        "hint_tokens": HINT,
        "seconds": round(time.monotonic() - begin),
    }
    figures["conditions"] = conditions("made", threads=1, seeds=[0], repeats=1)
    finish(figures)


if __name__ == "__main__":
    main()
