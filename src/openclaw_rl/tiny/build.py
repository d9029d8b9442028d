"""The seeded recipe of the bundled model: writes tokenizer, weights, scores and manifest into one folder."""

from __future__ import annotations

import json
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from openclaw_rl.render.template import read_template
from openclaw_rl.tiny import ordinary, scores, train, vocabulary
from openclaw_rl.tiny.corpus import sample, second_sample
from openclaw_rl.tiny.train import Progress, Schedule, TinyShape

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CHECKPOINT = "checkpoint.pt"


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that a build depends on, except the seed and the Python that it runs on."""

    shape: TinyShape
    schedule: Schedule
    second: Schedule  # of the second stage: from the weights of the first, with more turns to judge
    world_samples: int = 800  # toy world samples that the tokenizer is trained on
    files: int | None = None  # source files that ordinary texts are taken from; None for all
    scored: int = 100  # held-out cases for each skill
    longest: int = scores.MAX_NEW  # most tokens of an answer when scoring


FULL = Recipe(TinyShape(), Schedule(), Schedule(steps=3600, easy_share=0.0, warmup=40, matrix_lr=0.01, other_lr=2e-3))
SHORT = Recipe(  # takes seconds: shows that the recipe runs, but teaches nothing
    TinyShape(vocabulary=600, hidden=32, layers=2, inner=64, heads=2, kv_heads=1, head_dim=16),
    Schedule(steps=3, step_tokens=1024, micro_tokens=2048, warmup=1, checkpoint_every=2),
    Schedule(steps=2, easy_share=0.0, step_tokens=1024, micro_tokens=2048, warmup=1, checkpoint_every=2),
    world_samples=30,
    files=6,
    scored=1,
    longest=2,
)


def build(
    folder: Path,
    *,
    seed: int = 0,
    steps: int | None = None,
    short: bool = False,
    threads: int = 2,
    begin: Path | None = None,
    progress: Callable[[Progress, int], None] = lambda _progress, _steps: None,
) -> dict[str, object]:
    """Builds the model in the folder and returns its manifest. An interrupted build continues at its checkpoint.

    `begin` is the folder of a model from the first stage: its tokenizer and weights are used as they are, and only the
    second stage is run, which teaches judging with many more wordings. `steps` replaces the steps of the stage that is
    run. The shipped weights are those of the first stage.
    """
    began = time.monotonic()
    recipe = SHORT if short else FULL
    if steps is not None:
        if begin is None:
            recipe = replace(recipe, schedule=replace(recipe.schedule, steps=steps))
        else:
            recipe = replace(recipe, second=replace(recipe.second, steps=steps))
    folder.mkdir(parents=True, exist_ok=True)
    code = ordinary.sources(recipe.files)
    texts = [*code, *ordinary.prose(code)]
    if begin is None:
        manifest = _first_stage(folder, recipe, seed, texts, code=len(code), threads=threads, progress=progress)
    else:
        manifest = _second_stage(begin, folder, recipe, seed=seed, texts=texts, threads=threads, progress=progress)
    manifest["scores"] = scores.of(folder, count=recipe.scored, seed=seed, max_new=recipe.longest)
    manifest["seconds"] = round(time.monotonic() - began)
    folder.joinpath("manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")
    folder.joinpath(CHECKPOINT).unlink(missing_ok=True)  # kept until here, so that an interrupted build can continue
    return manifest


def _first_stage(
    folder: Path,
    recipe: Recipe,
    seed: int,
    texts: Sequence[str],
    *,
    code: int,
    threads: int,
    progress: Callable[[Progress, int], None],
) -> dict[str, object]:
    """Trains tokenizer and weights; returns the manifest. The first `code` texts are code, the rest is prose."""
    size = recipe.shape.vocabulary
    tokenizer = vocabulary.train(
        texts[:code], texts[code:], Random(seed), size=size, world_samples=recipe.world_samples
    )
    vocabulary.save(tokenizer, folder)
    template = read_template(folder)
    rng = Random(seed + 1)

    def draw(easy: bool) -> train.Encoded:
        return train.encode(tokenizer, sample(template, texts, rng, easy=easy))

    eos, pad = (vocabulary.SPECIAL.index(name) for name in ("<|im_end|>", "<|endoftext|>"))
    model = train.new_model(recipe.shape, seed, eos, pad)
    done = train.train(
        model,
        draw,
        rng,
        recipe.schedule,
        checkpoint=folder / CHECKPOINT,
        threads=threads,
        report=lambda at: progress(at, recipe.schedule.steps),
    )
    save(model, folder)
    return _manifest(recipe, seed, done, sum(weight.numel() for weight in model.parameters()))


def _second_stage(
    begin: Path,
    folder: Path,
    recipe: Recipe,
    *,
    seed: int,
    texts: Sequence[str],
    threads: int,
    progress: Callable[[Progress, int], None],
) -> dict[str, object]:
    """Takes further steps from the half-precision weights in `begin`; returns the manifest of both stages."""
    import torch
    from transformers import Qwen3ForCausalLM

    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(begin / name, folder / name)
    template = read_template(folder)
    rng = Random(seed + 2)

    def draw(_easy: bool) -> train.Encoded:
        return train.encode(template.tokenizer, second_sample(template, texts, rng))

    model: Qwen3ForCausalLM = Qwen3ForCausalLM.from_pretrained(begin, dtype=torch.float32)
    done = train.train(
        model,
        draw,
        rng,
        recipe.second,
        checkpoint=folder / CHECKPOINT,
        threads=threads,
        report=lambda at: progress(at, recipe.second.steps),
    )
    save(model, folder)
    manifest: dict[str, object] = json.loads(begin.joinpath("manifest.json").read_text("utf-8"))
    manifest["second"] = {"steps": done.step, "tokens": done.tokens, "data_digest": done.digest} | {
        "loss": round(done.loss, 4),
        "schedule": asdict(recipe.second),
        "versions": dict(_versions()),
    }
    return manifest


def save(model: PreTrainedModel, folder: Path) -> None:
    """Writes a copy in half precision, with a configuration by which it is loaded in full precision."""
    deepcopy(model).half().save_pretrained(folder)
    path = folder / "config.json"
    config = json.loads(path.read_text("utf-8"))
    config["dtype"] = "float32"
    path.write_text(json.dumps(config, indent=2) + "\n", "utf-8")


def _manifest(recipe: Recipe, seed: int, done: Progress, parameters: int) -> dict[str, object]:
    return {
        "seed": seed,
        "steps": done.step,
        "tokens": done.tokens,
        "data_digest": done.digest,
        "loss": round(done.loss, 4),
        "parameters": parameters,
        "recipe": asdict(recipe),
        "versions": dict(_versions()),
    }


def _versions() -> Iterator[tuple[str, str]]:
    yield "python", platform.python_version()
    for package in ("torch", "transformers", "tokenizers"):
        yield package, version(package)
