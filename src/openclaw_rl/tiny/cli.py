"""`openclaw-rl tiny`: builds the small models and the bundled judge, writes tasks for agents, and scores a model."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from openclaw_rl.errors import ConfigError
from openclaw_rl.tiny import train, world

app = typer.Typer(no_args_is_help=True, help="The toy model that ships with the package: build it, score it.")


@app.command()
def build(
    *,
    folder: Annotated[
        Path | None, typer.Option(help="Where the model is written; by default a synthetic world's is in the cache.")
    ] = None,
    world_name: Annotated[
        str,
        typer.Option(
            "--world",
            help="A synthetic world to build instead of the bundled model, or `all`; with another body as "
            "WORLD@ARCHITECTURE, for example letters@qwen3; WORLD@wide has about six times as many weights.",
        ),
    ] = "",
    seed: Annotated[int, typer.Option(help="Seed of data and weights.")] = 0,
    steps: Annotated[
        int | None, typer.Option(help="Training steps of the stage; the recipe's own number by default.")
    ] = None,
    short: Annotated[bool, typer.Option("--short", help="Tiny sizes, in seconds: shows that the recipe runs.")] = False,
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 2,
    begin: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="A model from the first stage: the second stage is run on it (the judge learns more words).",
        ),
    ] = None,
) -> None:
    """Build the bundled model, or that of a synthetic world, from its recipe: tokenizer, training, scores, manifest."""
    from openclaw_rl.tiny import build as recipe

    if world_name:
        _build_worlds(world_name, folder, seed=seed, steps=steps, short=short, threads=threads)
        return
    if folder is None:
        raise ConfigError("no folder is given to build the bundled model into", fix="give --folder, or --world")
    with building() as report:
        made = recipe.build(folder, seed=seed, steps=steps, short=short, threads=threads, begin=begin, progress=report)
    scored = made["scores"]
    assert isinstance(scored, dict)
    _print_scores(scored)
    _build_judge(folder, seed=seed, short=short, threads=1)  # more threads would add up in another order


@app.command()
def agent(
    *,
    folder: Annotated[Path, typer.Option(help="Where the agent model is written.")],
    seed: Annotated[int, typer.Option(help="Seed of data and weights.")] = 0,
    steps: Annotated[int | None, typer.Option(help="Training steps; the recipe's own number by default.")] = None,
    short: Annotated[bool, typer.Option("--short", help="Tiny sizes, in seconds: shows that the recipe runs.")] = False,
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 1,
    start: Annotated[Path | None, typer.Option(help="An agent model to continue from, with fewer steps.")] = None,
    lesson: Annotated[
        str,
        typer.Option(help="What is taught after --start: more (of all), counting, choices on pages, or copying."),
    ] = "more",
) -> None:
    """Build the small agent model from demonstrations that are often wrong; an interrupted build continues."""
    from openclaw_rl.tiny.agent import make

    if lesson not in make.CONTINUED:
        raise typer.BadParameter(f"{lesson!r} is not one of: {', '.join(make.CONTINUED)}", param_hint="--lesson")
    if lesson != "more" and start is None:
        raise typer.BadParameter("a lesson continues from a model: name its folder with --start", param_hint="--lesson")
    with building("agent") as report:
        made = make.make(
            folder, seed=seed, steps=steps, short=short, threads=threads, start=start, lesson=lesson, on_step=report
        )
    Console(stderr=True).print(f"{made['parameters']} weights, {made['seconds']} s, loss {made['loss']}, in {folder}")


@app.command("agent-tasks")
def agent_tasks(
    *,
    folder: Annotated[Path, typer.Option(help="Where the tasks are written: FOLDER/SETTING/SPLIT.")],
    setting: Annotated[
        list[str] | None,
        typer.Option("--setting", help="terminal, tools, software or screen; may be repeated. All by default."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the tasks.")] = 0,
    train: Annotated[int, typer.Option(help="Tasks to learn from, in each setting.")] = 512,
    test: Annotated[int, typer.Option(help="Unseen tasks of the same families, in each setting.")] = 48,
    held_back: Annotated[int, typer.Option(help="Tasks of a family that has no other tasks.")] = 16,
) -> None:
    """Write small tasks in the formats that `tasks check`, `rollout` and `train-agent` read."""
    from openclaw_rl.tiny.agent import folders

    counts = folders.TaskCounts(train, test, held_back)
    for name in setting or [*folders.WRITTEN]:
        for split, place in folders.write(folder, folders.setting_named(name), counts, seed=seed).items():
            Console(stderr=True).print(f"{name:9} {split:10} {place}", highlight=False)


@app.command()
def judge(
    *,
    folder: Annotated[Path, typer.Option(help="The model folder that the judge's two files are written into.")],
    seed: Annotated[int, typer.Option(help="Seed of data and weights.")] = 0,
    short: Annotated[bool, typer.Option("--short", help="Tiny sizes, in seconds: shows that the recipe runs.")] = False,
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 1,
    only: Annotated[int | None, typer.Option(help="Train only this member: two can be trained at once.")] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Then measure the judge on messages that it is not taught.")
    ] = False,
) -> None:
    """Build the bundled model's judge, a classifier of what follows a reply; an interrupted build continues.

    With --measure a judge that is there is not built again. What it recognises in messages that nobody taught it is
    printed, and how sure it must be to be rarely wrong: the certainty that the shipped one requires was found so.
    """
    from openclaw_rl.judge.encoder import has_classifier
    from openclaw_rl.tiny import hearing_scores

    if only is not None or not (measure and has_classifier(folder)):
        _build_judge(folder, seed=seed, short=short, threads=threads, only=only)
    if only is not None or not measure:
        return
    for line in hearing_scores.lines(folder, seed=seed, times=1 if short else 4):
        Console(stderr=True).print(line, highlight=False)


def _build_judge(folder: Path, *, seed: int, short: bool, threads: int, only: int | None = None) -> None:
    import torch

    from openclaw_rl.tiny import hearing_build

    torch.set_num_threads(threads)
    lessons = hearing_build.SHORT if short else hearing_build.FULL
    with building("judge") as report:
        hearing_build.build(
            folder,
            seed=seed,
            lessons=lessons,
            only=only,
            report=lambda at, total: report(train.Progress(step=at.step, loss=at.loss), total),
        )


def _build_worlds(name: str, folder: Path | None, *, seed: int, steps: int | None, short: bool, threads: int) -> None:
    """Builds the model of a world, or of all worlds, if it is missing: in the folder, by default in the cache.

    With all worlds, each model has a folder of its own in `folder`. Prints size, time and scores of each.
    """
    from openclaw_rl.tiny.worlds import WORLDS, make
    from openclaw_rl.tiny.worlds import world as named

    if folder is None and (short or steps is not None):
        raise ConfigError(
            f"with --short or --steps the model of world {name} is not the recipe's, and cannot be kept in the cache",
            fix="give --folder, too",
        )
    for world_ in WORLDS.values() if name == "all" else [named(name)]:
        place = folder / world_.name if folder and name == "all" else folder or make.place(world_, seed=seed)
        if not make.is_made(place):
            with building(world_.name) as report:
                make.make(world_, place, seed=seed, short=short, steps=steps, threads=threads, on_step=report)
        manifest = json.loads((place / "manifest.json").read_text("utf-8"))
        weights, seconds = manifest["parameters"], manifest["seconds"]
        Console(stderr=True).print(f"{world_.name}: {weights} weights, {seconds} s, in {place}")
        _print_scores(manifest["scores"])


@contextmanager
def building(name: str = "") -> Iterator[Callable[[train.Progress, int], None]]:
    """Shows a build's progress as a bar, and as a line every 50 steps if the output is not a terminal.

    Yields the function to call with the progress and the number of steps.
    """
    logging.getLogger("transformers").setLevel(logging.ERROR)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as bar:
        row = bar.add_task(f"{name} tokenizer", total=None)

        def report(at: train.Progress, total: int) -> None:
            bar.update(row, completed=at.step, total=total, description=f"{name} training, loss {at.loss:.3f}")
            if not console.is_terminal and at.step % 50 == 0:
                console.print(f"step {at.step}/{total} loss {at.loss:.4f} tokens {at.tokens}")

        yield report


@app.command()
def score(
    folder: Annotated[Path | None, typer.Option(help="A model folder; the bundled model by default.")] = None,
    count: Annotated[int, typer.Option(help="Held-out cases for each skill.")] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the cases.")] = 0,
    only: Annotated[str, typer.Option(help="Only skills with this in their name.")] = "",
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 2,
) -> None:
    """Print the share of good replies for each skill."""
    import torch

    from openclaw_rl.tiny import scores

    torch.set_num_threads(threads)
    _print_scores(scores.of(folder or world.bundled_model(), count=count, seed=seed, only=only))


def _print_scores(scored: dict[str, float]) -> None:
    table = Table("skill", "good")
    for name, share in scored.items():
        table.add_row(name, f"{share:.1%}")
    Console().print(table)
