"""Base weights in all, 8 and 4 bits: the recorded against the recomputed log-probability, memory, sessions to the wish.

The gap is measured between the engine's process and the trainer's model on the bundled model with an adapter; beside
it stands how far each few-bit model is from the one in all bits (mean divergence a token, in nats). Memory is the
private memory of an engine's and a trainer's process on a made model. Sessions are those of `make bench-learning`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median

import torch

from benchmarks.common import Figures, conditions, finish, is_quick, progress
from benchmarks.http import bundled_model
from benchmarks.memory import Bits, Dtype, Load, MadeModel, made_model, measured, together
from benchmarks.recompute import make_adapter
from openclaw_rl.core.adapter import Adapter
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.engines.local.client import LocalEngine
from openclaw_rl.engines.settings import EngineSettings
from openclaw_rl.trainers.batch import Reading, read_once, token_logp
from openclaw_rl.trainers.checkpoint import read_under
from openclaw_rl.trainers.model import CausalModel, load
from openclaw_rl.trainers.settings import TrainerSettings

DTYPES: tuple[Dtype, ...] = ("float32", "bfloat16")
WEIGHTS: tuple[Bits, ...] = ("auto", "8bit", "4bit")
RANK = 8
OF_MEMORY = MadeModel(hidden=1024, layers=12, vocabulary=8192)
"""About 120 M weights, as a middle between embeddings and layers."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A prompt, what the engine sampled after it, and what it recorded."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    logp: tuple[float, ...]


async def sampled(model: Path, adapter: Adapter, weights: Bits, dtype: Dtype, count: int) -> list[Reply]:
    """Replies of the engine's own process on the CPU, with the adapter, at temperature 1."""
    settings = EngineSettings(model=str(model), device="cpu", dtype=dtype, seed=0)
    async with aclosing(await LocalEngine.start(replace(settings, weights=weights))) as engine:
        return await replies_of(engine, adapter, count)


async def replies_of(engine: LocalEngine, adapter: Adapter, count: int) -> list[Reply]:
    """So many replies at the same time, with the adapter, at temperature 1."""
    await engine.load(adapter)

    async def one(number: int) -> Reply:
        prompt = tuple((7 * number + 3 * at) % 4000 + 10 for at in range(24 + 5 * (number % 9)))
        asked = engine.generate(Prompt(prompt), Sampling(max_tokens=48, seed=number), adapter.version)
        said = [item async for item in asked]
        return Reply(prompt, tuple(item.token for item in said), tuple(item.logp for item in said))

    return list(await asyncio.gather(*(one(number) for number in range(count))))


def policy(model: Path, adapter: Adapter, weights: Bits, dtype: Dtype, *, device: str = "cpu") -> CausalModel:
    """The trainer's model with the adapter."""
    plain = TrainerSettings(rank=RANK, alpha=2.0 * RANK, device=device)
    made = load(model, replace(plain, weights=weights, dtype=dtype))
    made.set_weights(read_under(adapter.folder, scale=2.0).weights)
    return made


def gaps(model: CausalModel, replies: list[Reply]) -> list[float]:
    """|recomputed - recorded| of each token, in nats."""
    found: list[float] = []
    for one in replies:
        ids = (*one.prompt, *one.tokens)
        wanted = Reading(ids, tuple(range(len(one.prompt), len(ids))))
        hidden = read_once(model, [wanted], 2048)[0]
        again = token_logp(model, hidden, torch.tensor(one.tokens, device=model.device), 1 << 20)
        found += (again.cpu() - torch.tensor(one.logp)).abs().tolist()
    return found


def divergence(full: CausalModel, low: CausalModel, replies: list[Reply]) -> float:
    """Mean KL(full || low) of a reply's tokens, in nats."""
    found: list[float] = []
    for one in replies:
        ids = (*one.prompt, *one.tokens)
        wanted = Reading(ids, tuple(range(len(one.prompt), len(ids))))
        with torch.no_grad():
            whole, less = (made.logits(read_once(made, [wanted], 2048)[0]).log_softmax(-1) for made in (full, low))
        found += (whole.exp() * (whole - less)).sum(-1).tolist()
    return fmean(found)


def compared(full: CausalModel, own: CausalModel, replies: list[Reply]) -> Figures:
    """The gaps of the trainer's model in the engine's bits and in all bits, and how far apart the two are."""
    off, crossed = sorted(gaps(own, replies)), sorted(gaps(full, replies))
    return {
        "gap_mean": fmean(off), "gap_p99": off[int(0.99 * len(off))], "gap_max": off[-1], "tokens": len(off),
        "gap_mean_if_the_trainer_has_all_bits": fmean(crossed),
        "divergence_from_all_bits": divergence(full, own, replies),
    }  # fmt: skip


def gap_figures(place: Path, count: int) -> Figures:
    """By number format and bits."""
    model = bundled_model()
    if model is None:
        raise SystemExit("the bundled model is not installed")
    adapter = make_adapter(model, place / "adapter", 1)
    found: Figures = {}
    for dtype in DTYPES:
        full = policy(model, adapter, "auto", dtype)
        for weights in WEIGHTS:
            replies = asyncio.run(sampled(model, adapter, weights, dtype, count))
            own = policy(model, adapter, weights, dtype)
            found[f"{dtype} {weights}"] = compared(full, own, replies)
            progress(f"{dtype} {weights}: {found[f'{dtype} {weights}']}")
    return found


def memory_figures(place: Path, *, context: int) -> Figures:
    """Mebibytes of each process, by bits."""
    model = made_model(place / "made", OF_MEMORY)
    found: Figures = {"model": str(OF_MEMORY), "context": context}
    for weights in WEIGHTS:
        load = Load(dtype="bfloat16", weights=weights, context=context)
        engine, trainer = measured(model, load)
        found[weights] = {"engine_mib": round(engine), "trainer_mib": round(trainer)} | together(model, load)
        progress(f"memory {weights}: {found[weights]}")
    return found


def learning_figures(place: Path, seeds: list[int], sessions: int) -> Figures:
    """Sessions until the wish holds, of each seed, by bits."""
    from benchmarks import learning  # its client is not there where the other parts run
    from openclaw_rl.evals.learning import RunSettings

    found: Figures = {}
    settings = RunSettings(sessions=sessions, problems=40 if is_quick() else 120, stop_after=0)
    for weights in WEIGHTS:
        config = place / f"{weights}.toml"
        config.write_text(f'[engine]\nweights = "{weights}"\n')
        reports = [asyncio.run(learning.one(seed, settings, config, learning.MODEL)) for seed in seeds]
        met = [report.converged_at for report in reports]
        told = learning.figures(reports, model=learning.MODEL, config=weights)
        known = [number if number is not None else float("inf") for number in met]
        found[weights] = {
            "sessions": met,
            "median": None if median(known) == float("inf") else median(known),
            "wish_before": told["wish_before"],
            "wish_at_convergence": told["wish_at_convergence"],
            "right_before": [one.measured("before").right.value for one in reports],  # type: ignore[union-attr]
            "accuracy_drop_points": told["accuracy_drop_points"],
            "refused": told["refused"],
            "seconds": told["seconds"],
        }
        progress(f"learning {weights}: {found[weights]}")
    return found


def main() -> None:
    """Runs the parts that are named; all without a name."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--parts", nargs="*", default=["gap", "memory", "learning"])
    options.add_argument("--seeds", type=int, nargs="*", default=[0] if is_quick() else [0, 1, 2])
    options.add_argument("--sessions", type=int, default=10 if is_quick() else 24)
    given = options.parse_args()
    torch.set_num_threads(1)
    begin, figures = time.monotonic(), Figures()
    with tempfile.TemporaryDirectory(prefix="openclaw-rl-lowbits-") as place:
        os.environ["XDG_CACHE_HOME"] = place  # where shared weights lie
        if "gap" in given.parts:
            figures["gap"] = gap_figures(Path(place), 8 if is_quick() else 32)
        if "memory" in given.parts:
            figures["memory"] = memory_figures(Path(place), context=256 if is_quick() else 1024)
        if "learning" in given.parts:
            figures["learning"] = learning_figures(Path(place), given.seeds, given.sessions)
    figures["seconds"] = round(time.monotonic() - begin)
    figures["conditions"] = conditions("bundled", threads=1, seeds=given.seeds, repeats=1)
    finish(figures)


if __name__ == "__main__":
    main()
