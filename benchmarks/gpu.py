"""`make bench-gpu`: a model of Qwen3-4B's shape on a CUDA device: served, scored and trained, and both in 24 GB.

python -m benchmarks.gpu [--home FOLDER] [--no-graphs] [PART ...]

`graphs` compares decode steps with CUDA graphs and without; `--no-graphs` does all parts without.

Without a CUDA device, or with QUICK=1, a tiny model on the CPU stands in: that tries the code and measures nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from benchmarks.common import Figures, conditions, finish, is_quick, progress
from benchmarks.gpu_decode import REPEATS, graphs
from benchmarks.gpu_long import long
from benchmarks.gpu_lowbits import lowbits
from benchmarks.gpu_model import QWEN3_4B, TINY, Setup, gb, guarded, make
from benchmarks.gpu_plan import plan
from benchmarks.gpu_serve import against_generate, serve, tokens
from benchmarks.gpu_together import together
from benchmarks.gpu_train import train

PARTS: dict[str, Callable[[Setup], Figures]] = {
    "serve": serve,
    "graphs": graphs,
    "generate": against_generate,
    "tokens": tokens,
    "long": long,
    "train": train,
    "together": together,
    "plan": plan,
    "lowbits": lowbits,
}


def main() -> None:
    """Measures, and prints the figures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all where none is named")
    options.add_argument("--home", type=Path, help="a folder that keeps the model for the next run")
    options.add_argument("--no-graphs", action="store_true", help="the engine replays no CUDA graphs")
    given = options.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        options.error(f"there is no part {', '.join(sorted(unknown))}")
    is_gpu = torch.cuda.is_available() and not is_quick()
    torch.set_num_threads(1)
    with _home(given.home) as home:
        setup = Setup(home, "cuda" if is_gpu else "cpu", QWEN3_4B if is_gpu else TINY, graphs=not given.no_graphs)
        figures: Figures = {"model": guarded(lambda: _model(setup))}
        for name in PARTS:
            if name in (given.parts or PARTS):
                figures[name] = _timed(name, setup)
    figures["conditions"] = (
        conditions(str(setup.shape), threads=1, seeds=[0], repeats=REPEATS)
        | {"device": setup.device}
        | guarded(lambda: _device(setup))
    )
    finish(figures)


@contextlib.contextmanager
def _home(given: Path | None) -> Iterator[Path]:
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given
        return
    with tempfile.TemporaryDirectory() as place:
        yield Path(place)


def _model(setup: Setup) -> Figures:
    if (setup.model / "config.json").exists():
        return {"made": False}
    began = time.perf_counter()
    count = make(setup)
    seconds = time.perf_counter() - began
    progress(f"{count:,} parameters made and written in {seconds:.1f} s")
    return {"made": True, "parameters": count, "seconds": round(seconds, 2)}


def _timed(name: str, setup: Setup) -> Figures:
    progress(f"--- {name}")
    began = time.perf_counter()
    figures = guarded(lambda: PARTS[name](setup))
    seconds = round(time.perf_counter() - began, 1)
    progress(f"--- {name} took {seconds} s")
    return figures | {"took_s": seconds}


def _device(setup: Setup) -> Figures:
    if not setup.is_gpu:
        return {"gpu": None}
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    return {
        "gpu": torch.cuda.get_device_name(),
        "driver": told.stdout.strip() or None,
        "cuda": torch.version.cuda,
        "memory_gb": gb(torch.cuda.mem_get_info()[1]),
    }


if __name__ == "__main__":
    main()
