"""The trainer on 1, 2 and 4 ranks: how far apart the weights are after 20 steps on the same samples.

Run with `python -m benchmarks.ranks`. Every step has samples of its own: sessions whose turns continue each other, some
given hints, some scored. LoRA takes several updates a step and may undo them, with its layers whole on each rank or
divided among them; full parameters are always divided. The yardstick is one rank that reads the same in passes of
half the size: what the order of additions alone makes of 20 steps. A run of two ranks is also continued by one, and the
other way round. Everything runs in the trainer's own processes, and the largest difference of any weight counts.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.common import Figures, conditions, finish, is_quick, progress
from openclaw_rl.core.sample import HintPrompt, Sample
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.tiny.world import bundled_model
from openclaw_rl.trainers.batch import balanced, tokens_of
from openclaw_rl.trainers.lessons import lessons
from openclaw_rl.trainers.process import TrainerProcess
from openclaw_rl.trainers.settings import Method, MethodSettings, TrainerSettings

STEPS, SEED = 20, 23
SESSIONS, MOST_TURNS, ASKED, ANSWER, SYSTEM = 8, 4, 24, 16, 120
RANKS = (2, 4)
LORA = TrainerSettings(
    rank=8, alpha=16.0, updates=4, enough=0.0, nice=0, device="cpu", method=MethodSettings(name=Method.TOPK)
)
FULL = TrainerSettings(
    parameters="full", lr=1e-4, nice=0, device="cpu", method=MethodSettings(name=Method.HYBRID, w_opd=1.0)
)
CLOSE = 1e-6  # of a weight, besides what the order of additions makes on one rank


def ids(chance: random.Random, count: int) -> tuple[int, ...]:
    """Random ids of the bundled model."""
    return tuple(chance.randrange(10, 900) for _ in range(count))


def batch(step: int) -> list[Sample]:
    """The samples of one step: sessions of one to four turns behind one system text."""
    chance = random.Random(f"{SEED}.{step}")
    system = ids(random.Random(SEED), SYSTEM)
    made = []
    for session in range(SESSIONS):
        prompt: tuple[int, ...] = system
        for turn in range(chance.randint(1, MOST_TURNS)):
            prompt += ids(chance, ASKED)
            reply = ids(chance, ANSWER)
            kind = chance.random()
            hints = (HintPrompt("shorter", system + ids(chance, 10) + prompt[SYSTEM:]),) if kind < 0.7 else ()
            score = chance.choice((-1.0, 1.0)) if kind > 0.4 else None
            made.append(
                Sample(
                    f"{step}.{session}.{turn}",
                    str(session),
                    "user",
                    prompt,
                    reply,
                    (-6.0,) * ANSWER,
                    (True,) * ANSWER,
                    BASE,
                    score=score,
                    hints=hints,
                )
            )
            prompt += reply
    return made


async def run(settings: TrainerSettings, steps: range, into: Path, *, resume: Path | None = None) -> list[Figures]:
    """Takes these steps, each from the version before it; what each reports. The last version is `into`/last."""
    trainer = TrainerProcess(bundled_model(), settings)
    found: list[Figures] = []
    try:
        for step in steps:
            report = await trainer.step(batch(step), resume=resume)
            name = "last" if step == steps[-1] else str(step)
            resume = (await trainer.export(into / name, PolicyVersion("shared", step + 1))).folder
            found.append({name: report.metrics.get(name) for name in ("loss", "updates", "updates_undone")})
            if step % 5 == 0:
                progress(f"{into.name}: step {step}, loss {report.metrics.get('loss', 0):.6f}")
    finally:
        await trainer.aclose()
    return found


def furthest(one: Path, other: Path) -> float:
    """The largest difference of any weight of two versions."""
    from safetensors.torch import load_file

    from openclaw_rl.core.adapter import files_of

    first, second = (load_file(folder / files_of(folder)[1]) for folder in (one, other))
    return max(float((first[name] - second[name]).abs().max()) for name in first)


def moved(version: Path) -> float:
    """The largest weight of LoRA's B, which begins at zero; of full parameters the largest way from the base model."""
    from safetensors.torch import load_file

    from openclaw_rl.core.adapter import files_of, is_full

    weights = load_file(version / files_of(version)[1])
    if is_full(version):
        return furthest(version, bundled_model())
    return max(float(one.abs().max()) for name, one in weights.items() if "lora_B" in name)


def alike(one: list[Figures], other: list[Figures]) -> int:
    """In how many steps both took and undid the same updates."""
    return sum(
        all(first[name] == second[name] for name in ("updates", "updates_undone"))
        for first, second in zip(one, other, strict=True)
    )


def balance(ranks: int, steps: int) -> Figures:
    """The most distinct tokens that a rank reads, over the mean of all ranks; and what parting makes read twice."""
    over, twice = [], []
    for step in range(steps):
        readings = [one.reading() for one in lessons(batch(step), LORA.method)]
        loads = [
            tokens_of([readings[index] for index in part]) for part in balanced(readings, ranks, updates=LORA.updates)
        ]
        over.append(max(loads) / (sum(loads) / ranks))
        twice.append(sum(loads) / tokens_of(readings))
    return {
        "median": round(median(over), 3),
        "worst": round(max(over), 3),
        "read_beside_one_rank": round(median(twice), 3),
    }


async def compared(kind: str, settings: TrainerSettings, steps: int, ground: Path) -> Figures:
    """All runs of one kind of parameters."""
    every = range(steps)
    one = ground / f"{kind}-1"
    alone = await run(settings, every, one)
    other_passes = replace(settings, max_tokens_per_pass=settings.max_tokens_per_pass // 2)
    yardstick = await run(other_passes, every, ground / f"{kind}-passes")
    found: Figures = {
        "moved": moved(one / "last"),
        "other_passes": furthest(one / "last", ground / f"{kind}-passes" / "last"),
        "other_passes_same_updates": alike(alone, yardstick),
        "updates": sum(int(str(step["updates"] or 0).partition(".")[0]) for step in alone),
        "undone": sum(int(str(step["updates_undone"] or 0).partition(".")[0]) for step in alone),
    }
    ways = [(f"{kind}-{ranks}", replace(settings, ranks=ranks)) for ranks in RANKS]
    if settings.parameters == "lora":
        ways.append((f"{kind}-2-divided", replace(settings, ranks=2, shard="always")))
    for name, way in ways:
        own = await run(way, every, ground / name)
        found[name] = {"apart": furthest(one / "last", ground / name / "last"), "same_updates": alike(alone, own)}
    half = steps // 2
    for before, after in ((2, 1),) if settings.parameters == "lora" else ((1, 4), (4, 2)):
        name = f"{kind}-{before}-then-{after}"
        middle = ground / f"{kind}-{before}" / str(half - 1)
        await run(replace(settings, ranks=after), range(half, steps), ground / name, resume=middle)
        found[name] = {"apart": furthest(one / "last", ground / name / "last")}
    return found


def worst(figures: Figures) -> float:
    """The largest difference among the runs of one kind."""
    return max(float(str(one["apart"])) for one in figures.values() if isinstance(one, dict))


async def main() -> int:
    """Everything, and the last line."""
    steps = 4 if is_quick() else STEPS
    with tempfile.TemporaryDirectory() as folder:
        found = {
            kind: await compared(kind, settings, steps, Path(folder))
            for kind, settings in (("lora", LORA), ("full", FULL))
        }
    apart = {kind: worst(figures) for kind, figures in found.items()}
    bounds = {kind: float(str(figures["other_passes"])) + CLOSE for kind, figures in found.items()}
    figures: Figures = {
        "steps": steps,
        "largest_difference": apart,
        "bound": bounds,
        **found,
        "tokens_of_the_fullest_rank_over_the_mean": {str(ranks): balance(ranks, steps) for ranks in RANKS},
        **conditions("the bundled model", threads=1, seeds=[SEED], repeats=1),
    }
    finish(figures)
    return int(any(apart[kind] > bounds[kind] for kind in apart))


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
