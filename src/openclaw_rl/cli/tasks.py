"""`openclaw-rl tasks`: checks tasks for agents before they are used, and makes tasks."""

from __future__ import annotations

import asyncio
import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import Progress

from openclaw_rl.cli.common import say
from openclaw_rl.envs.box.probe import BoxKind, open_boxes
from openclaw_rl.envs.software.injecting import BugChoice, Injected, Naming, inject
from openclaw_rl.envs.software.library import take_library
from openclaw_rl.envs.tasks.check import Checked, TaskReport, TaskVerdict, check_sources
from openclaw_rl.envs.tasks.source import TaskSource
from openclaw_rl.envs.tasks.sources import find_sources

app = typer.Typer(no_args_is_help=True)
COLOURS = {TaskVerdict.SOUND: "green", TaskVerdict.NO_SOLUTION: "yellow", TaskVerdict.SKIPPED: "yellow"}


@app.callback()
def top() -> None:
    """Commands about tasks."""


@app.command("check")
def check(
    folder: Annotated[Path, typer.Argument(help="A task, or a folder with tasks of any known format.")],
    box: Annotated[
        BoxKind, typer.Option("--box", help="How boxes are made. `plain` does not isolate anything.")
    ] = BoxKind.AUTO,
    at_once: Annotated[int, typer.Option("--at-once", help="How many tasks at a time.", min=1)] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check that each task's start fails and its own solution passes.

    Each is judged on a fork of its box; only the fork contains the tests. Exits with 1 if a task is bad or none is
    sound, else with 0. Tasks that need something that is not available here are skipped, with the reason.
    """
    sources = find_sources(folder)
    report = asyncio.run(_checked(sources_of=sources, box=box, at_once=at_once, is_quiet=as_json))
    if as_json:
        print(json.dumps({"good": report.is_good, "counts": report.counts, "tasks": _plain(report)}))
    else:
        said = ", ".join(f"{count} {verdict}" for verdict, count in report.counts.items())
        say.print(f"{len(report.checked)} tasks: {said}", soft_wrap=True)
    raise typer.Exit(0 if report.is_good else 1)


@app.command("make-swe")
def make_swe(
    library: Annotated[
        str, typer.Argument(help="A project's folder, its source archive, or a name for which pip fetches the source.")
    ],
    *,
    out: Annotated[Path, typer.Option("--out", help="The folder for the tasks: a subfolder for each library.")] = Path(
        "swe-tasks"
    ),
    most: Annotated[int, typer.Option("--most", help="How many tasks to make at most.", min=1)] = 50,
    seed: Annotated[int, typer.Option("--seed", help="Which bugs are tried, and in which order.")] = 0,
    tries: Annotated[int, typer.Option("--tries", help="Bugs to try in each function until one is kept.", min=1)] = 3,
    tests: Annotated[str, typer.Option("--tests", help="The tests: a folder or file. [default: found]")] = "",
    suite_s: Annotated[float, typer.Option("--suite-seconds", help="The longest that the suite may take.")] = 60.0,
    naming: Annotated[
        Naming, typer.Option("--naming", help="What the instruction names besides the failures.")
    ] = Naming.FUNCTION,
    box: Annotated[
        BoxKind, typer.Option("--box", help="How boxes are made. `plain` does not isolate anything.")
    ] = BoxKind.AUTO,
    at_once: Annotated[int, typer.Option("--at-once", help="How many bugs are tried at a time.", min=1)] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make repair tasks from a library: bugs put into its functions, kept if 1 to 12 of its own tests fail.

    Each function gets at most one. The suite must pass without the bug; tests that fail without any bug are left out.
    If it is stopped, it continues when called again, and the same seed gives the same tasks. For a name pip fetches the
    source, which runs the project's own build script; everything else runs in boxes.
    """
    choice = BugChoice(seed, most, tries, suite_s, naming)
    made = asyncio.run(_made(library, out, tests, choice, box=box, at_once=at_once, is_quiet=as_json))
    others = {outcome: count for outcome, count in made.outcomes.items() if outcome != "kept"}
    if as_json:
        figures = {"folder": str(made.folder), "kept": len(made.rows), "functions": made.functions, "others": others}
        print(json.dumps({**figures, "tried_functions": made.tried_functions, "left_out": made.left_out}))
    else:
        said = ", ".join(f"{count} bugs: {outcome}" for outcome, count in sorted(others.items())) or "none"
        say.print(
            f"{len(made.rows)} tasks are in {made.folder}. {made.tried_functions} of {made.functions} functions were "
            f"tried. Not kept: {said}.",
            soft_wrap=True,
        )
        if made.left_out:
            say.print(f"{len(made.left_out)} tests fail in the library as it is, and were left out", soft_wrap=True)
    raise typer.Exit(0 if made.rows else 1)


async def _made(
    given: str, out: Path, tests: str, choice: BugChoice, *, box: BoxKind, at_once: int, is_quiet: bool
) -> Injected:
    with tempfile.TemporaryDirectory() as place:
        library = take_library(given, Path(place), tests=tests)
        boxes = await open_boxes(box)
        with Progress(console=say, disable=is_quiet) as bar:
            shown = bar.add_task(library.name, total=choice.most)

            def tell(made: Injected) -> None:
                what = f"{library.name}: {made.tried_functions} of {made.functions} functions"
                bar.update(shown, completed=len(made.rows), description=what)

            try:
                folder = out / library.name
                return await inject(library, boxes, folder, choice, at_once=at_once, tell=tell)
            finally:
                await boxes.aclose()


async def _checked(*, sources_of: list[TaskSource], box: BoxKind, at_once: int, is_quiet: bool) -> TaskReport:
    boxes = await open_boxes(box)
    try:
        return await check_sources(sources_of, boxes, at_once=at_once, tell=_ignore if is_quiet else _show)
    finally:
        await boxes.aclose()


def _show(one: Checked) -> None:
    colour = COLOURS.get(one.verdict, "bold red")
    reason = f"  {escape(one.reason[:300])}" if one.reason else ""
    say.print(f"[{colour}]{one.verdict:14}[/]  {escape(one.id)}  {one.duration_s:.1f} s{reason}", soft_wrap=True)


def _ignore(_one: Checked) -> None:
    """Nobody watches."""


def _plain(report: TaskReport) -> list[dict[str, object]]:
    return [asdict(one) for one in report.checked]


@app.command("make-screens")
def make_screens(
    folder: Annotated[Path, typer.Argument(help="The folder for the rows, in screens.jsonl.")],
    family: Annotated[
        list[str] | None, typer.Option("--family", help="A family of pages. Repeatable. [default: all of them]")
    ] = None,
    page: Annotated[
        list[str] | None, typer.Option("--miniwob", help="A page of MiniWoB++, such as click-button. Repeatable.")
    ] = None,
    train: Annotated[int, typer.Option("--train", help="Training tasks of each.", min=0)] = 40,
    test: Annotated[
        int, typer.Option("--test", help="Test tasks of each; none is among the training tasks.", min=0)
    ] = 20,
) -> None:
    """Write tasks that are done in a browser: included families of pages, each made from a seed, and MiniWoB++'s."""
    from openclaw_rl.envs.screen.rows import write_rows

    path, count = write_rows(folder, family or [], page or [], train=train, test=test)
    say.print(f"{count} tasks in {escape(str(path))}", soft_wrap=True)
