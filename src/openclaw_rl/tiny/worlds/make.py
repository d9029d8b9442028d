"""Builds the model of a synthetic world: tokenizer, training, scores, manifest; in a cache by its recipe's digest."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from statistics import mean

from openclaw_rl.render.template import ChatTemplate, compile_template, read_template
from openclaw_rl.tiny import build, train
from openclaw_rl.tiny.train import Progress, Schedule, TinyShape
from openclaw_rl.tiny.worlds import talks, tokens, trial
from openclaw_rl.tiny.worlds.bodies import new_model
from openclaw_rl.tiny.worlds.world import World

CACHE = "OPENCLAW_RL_WORLDS"  # environment variable: the folder of built models
DIGESTED = 60  # dialogues that are a part of a recipe's digest
TOKENIZER_TEXTS = 1500  # dialogues that the tokenizer is trained on
# Training goes on until answers are right, or what is measured on a model is what it cannot do. How far the same steps
# lead differs between processors.
RIGHT_MEAN, RIGHT_LEAST = 0.985, 0.95  # of the shares of right answers, with and without one wish
ALL_LEAST = 0.65  # replies as wished among those told all wishes, where a world is about following them all
MOST_MORE = 3  # times that training continues, each for a share of `MORE_STEPS` of the steps
MORE_STEPS, MORE_RATE = 0.25, 0.5
SEVERAL = ("two hints", trial.ALL_HINTS)  # scores of several wishes at once: not every model can follow them
SHORT_SHAPE = TinyShape(vocabulary=420, hidden=32, layers=2, inner=48, heads=2, kv_heads=1, head_dim=16)
SHORT_SCHEDULE = Schedule(steps=2, step_tokens=512, warmup=1, checkpoint_every=1, grain=32)
OnStep = Callable[[Progress, int], None]


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of built models: the value of `OPENCLAW_RL_WORLDS`, or `~/.cache/openclaw-rl/worlds`."""
    named = environment.get(CACHE)
    return Path(named) if named else Path.home() / ".cache" / "openclaw-rl" / "worlds"


def place(world: World, *, seed: int = 0, cache: Path | None = None) -> Path:
    """The folder of the world's model in the cache, whether it is built or not."""
    return (cache or cache_folder()) / f"{world.name}-{digest(world, seed)}"


def is_made(folder: Path) -> bool:
    """Whether the folder contains a finished build."""
    return (folder / "manifest.json").is_file()


def made(
    world: World, *, seed: int = 0, cache: Path | None = None, on_step: OnStep = lambda _progress, _steps: None
) -> Path:
    """The folder of the world's model, which is built first if it is missing."""
    folder = place(world, seed=seed, cache=cache)
    if not is_made(folder):
        make(world, folder, seed=seed, on_step=on_step)
    return folder


def digest(world: World, seed: int) -> str:
    """The digest of a recipe: shape, schedule, template, architecture, tokenizer, seed and its first dialogues."""
    said = _dialogues(world, seed, DIGESTED)
    until = [RIGHT_MEAN, RIGHT_LEAST, MOST_MORE, MORE_STEPS, MORE_RATE, *([ALL_LEAST] if world.by_kind else [])]
    recipe = [asdict(world.shape), asdict(world.schedule), asdict(world.template), world.architecture, world.cut, until]
    return hashlib.blake2b(json.dumps([recipe, said, seed]).encode(), digest_size=6).hexdigest()


def make(
    world: World,
    folder: Path,
    *,
    seed: int = 0,
    short: bool = False,
    steps: int | None = None,
    threads: int = 1,
    scored: int = 100,
    on_step: OnStep = lambda _progress, _steps: None,
) -> dict[str, object]:
    """Builds the model in the folder and returns its manifest. An interrupted build continues at its checkpoint.

    Training continues while too few answers are right, unless `short` or `steps` is given. `scored` is the number of
    held-out problems for each score.
    """
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    shape, schedule = (SHORT_SHAPE, SHORT_SCHEDULE) if short else (world.shape, world.schedule)
    most_more = MOST_MORE if steps is None and not short else 0
    schedule = schedule if steps is None else replace(schedule, steps=steps)
    texts = _dialogues(world, seed, 60 if short else TOKENIZER_TEXTS)
    if not checkpoint(folder, 0).is_file():  # training of pieces ends differently each time
        tokens.save(tokens.trained(world, texts, shape.vocabulary), world, folder)
    template = read_template(folder)
    rng = Random(seed + 1)

    def draw(easy: bool) -> train.Encoded:
        return train.encode(template.tokenizer, talks.sample(world, template, rng, easy=easy))

    model = new_model(world, shape, template.tokenizer, seed)
    done: list[Progress] = []
    scores: dict[str, float] = {}
    while not done or (len(done) <= most_more and not are_right(scores)):
        kept = checkpoint(folder, len(done))
        report = _reporting(on_step, schedule.steps)
        done.append(train.train(model, draw, rng, schedule, checkpoint=kept, threads=threads, report=report))
        build.save(model, folder)
        scores = trial.of(world, folder, count=1 if short else scored, seed=seed, max_new=2 if short else 120)
        schedule = continued(world.schedule)
    manifest: dict[str, object] = {
        "world": world.name,
        "seed": seed,
        "architecture": world.architecture.value,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "steps": sum(each.step for each in done),
        "continued": len(done) - 1,
        "tokens": sum(each.tokens for each in done),
        "loss": round(done[-1].loss, 4),
        "scores": scores,
        "seconds": round(time.monotonic() - began),
    }
    folder.joinpath("manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")
    for number in range(len(done)):  # kept until here, so that an interrupted build can continue
        checkpoint(folder, number).unlink(missing_ok=True)
    return manifest


def are_right(scores: Mapping[str, float]) -> bool:
    """Whether enough answers are right, without a wish and with one, and all wishes are followed where tried."""
    found = [share for name, share in scores.items() if name.endswith(": right") and not name.startswith(SEVERAL)]
    is_told_all = scores.get(f"{trial.ALL_HINTS}: as wished", 1.0) >= ALL_LEAST
    return is_told_all and mean(found) >= RIGHT_MEAN and min(found) >= RIGHT_LEAST


def continued(schedule: Schedule) -> Schedule:
    """The schedule of a continued training: fewer steps, smaller, none of them on easy samples."""
    return replace(
        schedule,
        steps=max(1, round(MORE_STEPS * schedule.steps)),
        easy_share=0.0,
        matrix_lr=MORE_RATE * schedule.matrix_lr,
        other_lr=MORE_RATE * schedule.other_lr,
    )


def checkpoint(folder: Path, number: int) -> Path:
    """The checkpoint of a build's first training, or of the time that it was continued."""
    return folder / (f"checkpoint-{number}.pt" if number else "checkpoint.pt")


def _reporting(on_step: OnStep, steps: int) -> Callable[[Progress], None]:
    return lambda at: on_step(at, steps)


def _dialogues(world: World, seed: int, count: int) -> list[str]:
    """The first dialogues of a recipe, with its template and a tokenizer that knows only bytes."""
    bare = ChatTemplate(tokens.trained(world, ["a"], 300), compile_template(world.template.source), {})
    rng = Random(seed)
    samples = [talks.sample(world, bare, rng) for _ in range(count)]
    return ["".join(piece for piece, _ in sample.pieces) for sample in samples]
