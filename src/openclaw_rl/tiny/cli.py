"""`openclaw-rl tiny`: make the bundled model again, and see what it can do."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from openclaw_rl.tiny import train, world

app = typer.Typer(no_args_is_help=True, help="The toy model that ships with the package: build it, score it.")


@app.command()
def build(
    *,
    folder: Annotated[Path, typer.Option(help="Where the model is written.")],
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
            help="A model that has done the first stage: the second is run on it (the judge learns more words).",
        ),
    ] = None,
) -> None:
    """Make the bundled model from its recipe: tokenizer, training, scores, manifest."""
    from openclaw_rl.tiny import build as recipe

    logging.getLogger("transformers").setLevel(logging.ERROR)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as bar:
        shown = bar.add_task("tokenizer", total=None)

        def report(at: train.Progress, total: int) -> None:
            bar.update(shown, completed=at.step, total=total, description=f"training, loss {at.loss:.3f}")
            if not console.is_terminal and at.step % 50 == 0:
                console.print(f"step {at.step}/{total} loss {at.loss:.4f} tokens {at.tokens}")

        made = recipe.build(folder, seed=seed, steps=steps, short=short, threads=threads, begin=begin, progress=report)
    scored = made["scores"]
    assert isinstance(scored, dict)
    _print_scores(scored)


@app.command()
def score(
    folder: Annotated[Path | None, typer.Option(help="A model folder; the bundled model by default.")] = None,
    count: Annotated[int, typer.Option(help="Held-out cases a skill.")] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the cases.")] = 0,
    only: Annotated[str, typer.Option(help="Only skills whose name holds this.")] = "",
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 2,
) -> None:
    """Print what a model can do, skill by skill."""
    import torch

    from openclaw_rl.tiny import scores

    torch.set_num_threads(threads)
    _print_scores(scores.of(folder or world.bundled_model(), count=count, seed=seed, only=only))


def _print_scores(scored: dict[str, float]) -> None:
    table = Table("skill", "good")
    for name, share in scored.items():
        table.add_row(name, f"{share:.1%}")
    Console().print(table)
