"""`openclaw-rl eval`: does it learn what people want, and keep what it knew."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openclaw_rl.cli import eval_tasks, judging
from openclaw_rl.cli.common import print_evaluation, run_in_order, say
from openclaw_rl.evals.personalization.methods import Mode

if TYPE_CHECKING:
    from openclaw_rl.evals.personalization.plan import EvalPlan
    from openclaw_rl.evals.personalization.trials import Trial

app = typer.Typer(no_args_is_help=True)
QUICK_SEEDS, QUICK_SESSIONS, QUICK_PROBLEMS = 2, 8, 16


@app.callback()
def top() -> None:
    """Measure whether a model learns what its users want, and whether it keeps what it knew."""


Model = Annotated[str, typer.Option("--model", help="What is taught: `bundled`, a model folder, or a hub name.")]
Users = Annotated[
    str,
    typer.Option(
        "--users",
        help="Who words what the users say: `scripted`, or the base URL of an OpenAI-style endpoint whose first model "
        "plays them (its key in OPENAI_API_KEY). Whether a reply counts is decided by the same strict rule either way.",
    ),
]
Judge = Annotated[
    str,
    typer.Option(
        "--judge",
        help="Who judges: leave it out for the judge of the settings, give the base URL of another, "
        "or `scripted` for one that "
        "knows every wish (an ablation that separates the judge's mistakes from those of learning).",
    ),
]
Recipe = Annotated[
    Path | None,
    typer.Option("--recipe", help="A TOML file that every method builds on. [default: the settings as shipped]"),
]
Problems = Annotated[
    Path | None,
    typer.Option("--problems", help="Word problems in GSM8K's JSONL form. [default: the bundled model's own kind]"),
]
Folder = Annotated[
    Path,
    typer.Option("--folder", help="Where finished trials are kept. A trial with the same conditions is not run again."),
]
AtOnce = Annotated[int, typer.Option("--at-once", help="Trials under way at the same time, each on a server.", min=1)]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the figures to this file, too.")]
Report = Annotated[Path | None, typer.Option("--report", help="Write an HTML page with the tables and plots.")]
Results = Annotated[
    Path | None,
    typer.Option("--results", help="A Markdown document whose section for this is rewritten, with its picture."),
]
Quick = Annotated[bool, typer.Option("--quick", help="Few seeds, sessions and problems: a quick look, not figures.")]


@app.command()
def personalization(
    *,
    mode: Annotated[
        Mode, typer.Option("--mode", help="separate: a model for each user; joint: three users share one.")
    ] = Mode.SEPARATE,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            help="A method's name, a TOML file of settings, all, or ablations; may be given again. [default: all]",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", help="How many seeds, starting at 0.", min=1)] = 5,
    sessions: Annotated[
        int, typer.Option("--sessions", help="Sessions of each user until a method is given up.", min=1)
    ] = 20,
    probes: Annotated[
        int, typer.Option("--probes", help="Unseen problems of each user in one measurement.", min=1)
    ] = 60,
    model: Model = "bundled",
    users: Users = "scripted",
    judge: Judge = "",
    recipe: Recipe = None,
    problems: Problems = None,
    folder: Folder = Path("eval"),
    at_once: AtOnce = 1,
    json_file: JsonFile = None,
    report: Report = None,
    results: Results = None,
    section: Annotated[
        str, typer.Option("--section", help="Which section of that document. [default: the mode]", show_default=False)
    ] = "",
    quick: Quick = False,
) -> None:
    """Teach three people's hidden wishes to a model and count the sessions it takes, method by method.

    A student (nothing that looks like AI; then the answer in a file), a teaching assistant (detailed grades) and a
    teacher (friendly comments) correct the replies until they are content. A first reply counts only if it follows
    the wish, is right, has a reasonable length and number of steps, leaks no reasoning, and changes the file as asked.
    Ends with the figures as one line of JSON. If it is stopped, it continues after the last finished trial.
    """
    from openclaw_rl.evals.personalization.trials import TrialSettings

    plan = _plan(mode, method or ["all"], model, problems, recipe)
    settings = TrialSettings(sessions=sessions, most_sessions=2 * sessions, problems=probes)
    if quick:
        settings = replace(settings, sessions=QUICK_SESSIONS, most_sessions=2 * QUICK_SESSIONS, problems=QUICK_PROBLEMS)
    plan = replace(
        plan,
        seeds=tuple(range(min(seeds, QUICK_SEEDS) if quick else seeds)),
        settings=settings,
        folder=folder,
        users=users,
        judge=judge,
        at_once=at_once,
    )
    trials = _run(plan)
    _deliver(plan, trials, json_file, report, (results, section))


@app.command()
def wishes(
    *,
    carry: Annotated[
        list[str] | None,
        typer.Option("--carry", help="weights, memory or bridge; may be given again. [default: all three]"),
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", help="How many seeds, starting at 0. Each uses another order of wishes.", min=1)
    ] = 5,
    sessions: Annotated[
        int, typer.Option("--sessions", help="Sessions for each wish until it is given up.", min=1)
    ] = 8,
    probes: Annotated[int, typer.Option("--probes", help="Unseen tasks for each wish in one measurement.", min=1)] = 40,
    model: Model = "bundled",
    judge: Judge = "",
    recipe: Recipe = None,
    folder: Folder = Path("eval"),
    at_once: AtOnce = 1,
    json_file: JsonFile = None,
    report: Report = None,
    results: Results = None,
    quick: Quick = False,
) -> None:
    """Teach twelve wishes one after another to one model; count those that are followed in the end, and their cost.

    The wishes are one user's: how solutions, grades and comments are written, how they begin and how they end, and how
    replies to thanks and file reports do. They are learned by the weights, kept in a memory in the prompt, or first in
    the prompt and then in the weights (bridge).
    """
    from openclaw_rl.evals.personalization.methods import CARRIES, chosen
    from openclaw_rl.evals.personalization.trials import TrialSettings
    from openclaw_rl.evals.wishes import report as reports
    from openclaw_rl.evals.wishes.run import one_user, wish_figures

    plan = replace(
        _plan(Mode.JOINT, [], model, None, recipe),
        methods=chosen(carry or ["all"], {"all": CARRIES}),
        seeds=tuple(range(1 if quick else seeds)),
        settings=TrialSettings(sessions=4 if quick else sessions, problems=QUICK_PROBLEMS if quick else probes),
        folder=folder,
        judge=judge,
        at_once=at_once,
        cast=one_user,
        in_turn=True,
    )
    trials = _run(plan)
    found = wish_figures(plan, trials)
    if json_file is not None:
        json_file.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    if report is not None:
        report.write_text(reports.as_html(found), "utf-8")
    if results is not None:
        reports.write_results(results, found)
    print_evaluation("wishes", found)


def _plan(mode: Mode, methods: list[str], model: str, problems: Path | None, recipe: Path | None) -> EvalPlan:
    """The plan's model and conditions; numbers and lengths are filled in later."""
    from openclaw_rl.evals.people.exercises import ToyExercises, read_exercises
    from openclaw_rl.evals.personalization.methods import chosen, read_recipe
    from openclaw_rl.evals.personalization.plan import EvalPlan

    return EvalPlan(
        mode=mode,
        methods=chosen(methods),
        seeds=(),
        recipe={} if recipe is None else read_recipe(recipe),
        folder=Path("eval"),
        model=model,
        exercises=read_exercises(problems) if problems else ToyExercises(),
    )


def _run(plan: EvalPlan) -> list[Trial]:
    """Runs every trial of the plan and shows results as they come."""
    from openclaw_rl.evals.personalization.plan import run_plan
    from openclaw_rl.evals.personalization.view import PlanView

    with PlanView(say, len(plan.cells())) as view:
        return run_in_order(run_plan(plan, view))


def _deliver(
    plan: EvalPlan, trials: list[Trial], json_file: Path | None, report: Path | None, results: tuple[Path | None, str]
) -> None:
    """Writes the figures to all requested places."""
    from openclaw_rl.evals.personalization import report as reports
    from openclaw_rl.evals.personalization.figures import figures

    found = figures(plan, trials)
    if json_file is not None:
        json_file.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    if report is not None:
        report.write_text(reports.as_html(plan, found, trials), "utf-8")
    document, section = results
    if document is not None:
        reports.write_results(document, plan, found, trials, section)
    print_evaluation("personalization", found)


app.add_typer(judging.app)
app.add_typer(eval_tasks.app)
