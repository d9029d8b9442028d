"""The demonstration: a server on the bundled model, a simulated student, and a report of what was learned."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from openclaw_rl.evals.client import Client, served_model
from openclaw_rl.evals.demo.report import as_html, as_json, headline
from openclaw_rl.evals.demo.view import DemoView
from openclaw_rl.evals.learning import BEFORE, LearningRun, RunSettings
from openclaw_rl.evals.people.users import Student
from openclaw_rl.evals.records import LearningReport
from openclaw_rl.evals.server import serving

MODEL = "bundled"
STAY = 4  # sessions that still follow the one that converged
PROBLEMS = 100  # in each of three measurements: a few seconds each


async def run_demo(
    out: Path, *, sessions: int = 24, seed: int = 0, problems: int = PROBLEMS, model: str = MODEL
) -> None:
    """Shows the loop live on standard error; ends with the figures as one line of JSON on standard output.

    Writes `report.json` and `report.html` into `out`. Ctrl-C ends it with what it has.
    """
    console = Console(stderr=True, highlight=False)
    settings = RunSettings(sessions=sessions, problems=problems, stop_after=STAY)
    started, run = time.monotonic(), None
    try:
        with tempfile.TemporaryDirectory(prefix="openclaw-rl-demo-") as home, DemoView(console) as view:
            view.say(f"starting the server on the model {model}")
            async with serving(Path(home), model=model) as server:
                name = await served_model(server.base_url, server.key)
                async with Client(server.base_url, server.key, name) as client:
                    run = LearningRun(client, Student(seed), settings, seed=seed, on_event=view)
                    run.started_s = started  # the start of the server counts
                    await run.run()
                    await run.report()
                    view.say("done")
    finally:
        if run is not None and run.measurements:
            report = run.report_now()
            _write(report, out, model)
            _tell(report, out, console)
            sys.stdout.write(json.dumps(as_json(report, model=model)) + "\n")


def _write(report: LearningReport, out: Path, model: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    out.joinpath("report.json").write_text(json.dumps(as_json(report, model=model), indent=1) + "\n", "utf-8")
    out.joinpath("report.html").write_text(as_html(report, model=model), "utf-8")


def _tell(report: LearningReport, out: Path, console: Console) -> None:
    """What was learned, in words."""
    before, after = report.measured(BEFORE), report.last
    console.print()
    console.print(f"[bold]{headline(report)}.[/]")
    console.print(f"  sessions          {len(report.sessions)}, with {report.corrections} corrections")
    if before is not None and after is not None:
        console.print(f"  wish followed     {before.wish} before, {after.wish} after, on problems never seen")
        console.print(f"  answers right     {before.right} before, {after.right} after, on the same problems")
    console.print(f"  versions          {report.versions} made and served, {report.refused} requests refused")
    console.print(f"  time              {report.seconds:.0f} s")
    console.print(f"  report            {out / 'report.html'}")
