"""Does it learn, and keep what it knew: sessions until the wish holds, accuracy on unseen problems, over several seeds.

Each seed is a fresh server on a fresh folder and a student of its own, driven over HTTP for all its sessions, converged
or not. Progress goes to standard error; the last line is one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.common import Figures, conditions, finish, is_quick, progress
from openclaw_rl.evals.demo.report import as_json
from openclaw_rl.evals.learning import AFTER, BEFORE, CONVERGED, Event, RunSettings, learn
from openclaw_rl.evals.people.users import Student
from openclaw_rl.evals.records import LearningReport, Measurement, SessionRecord
from openclaw_rl.evals.server import serving

MODEL = "bundled"
FULL = RunSettings(sessions=24, problems=200)
SEEDS = 5


async def one(seed: int, settings: RunSettings, config: Path | None, model: str) -> LearningReport:
    """A run of its own, server and all."""

    def tell(event: Event) -> None:
        if isinstance(event, SessionRecord):
            marks = "".join("+" if turn.check.is_met else "-" for turn in event.turns)
            hints = sum(bool(turn.news and turn.news.hints) for turn in event.turns)
            version = event.turns[0].reply.version
            progress(f"seed {seed} session {event.number} {version} {marks} hints={hints} {event.seconds:.1f} s")
        elif isinstance(event, Measurement):
            progress(f"seed {seed} {event.label}: wish {event.wish}, right {event.right}, odd {event.degenerate}")

    with tempfile.TemporaryDirectory(prefix="openclaw-rl-learning-") as home:
        async with serving(Path(home), model=model, config=config) as server:
            return await learn(server.base_url, server.key, Student(seed), settings=settings, seed=seed, on_event=tell)


def figures(reports: list[LearningReport], *, model: str, config: str) -> Figures:
    """The figures over all seeds. Drops are means over the seeds, in points; None where a moment was never reached."""
    met_at = [report.converged_at for report in reports]
    # A seed that never got there counts as later than any that did.
    median = statistics.median(number if number is not None else float("inf") for number in met_at)
    return {
        "converged_at": met_at,
        "median": None if median == float("inf") else median,
        "accuracy_drop_points": _mean([_drop(report, CONVERGED) for report in reports]),
        "accuracy_drop_points_after_24": _mean([_drop(report, AFTER) for report in reports]),
        "wish_after_24": _mean([_wish(report, AFTER) for report in reports]),
        "wish_before": _mean([_wish(report, BEFORE) for report in reports]),
        "wish_at_convergence": _mean([_wish(report, CONVERGED) for report in reports]),
        "corrections": [report.corrections for report in reports],
        "versions": [report.versions for report in reports],
        "refused": sum(report.refused for report in reports),
        "unsettled_sessions": sum(not session.is_settled for report in reports for session in report.sessions),
        "seconds": [round(report.seconds, 1) for report in reports],
        "runs": [as_json(report, model=model)["measurements"] for report in reports],
        "conditions": conditions(model, threads=1, seeds=[report.seed for report in reports], repeats=1)
        | {"recipe": config, "temperature": reports[0].temperature, "sessions": len(reports[0].sessions)},
    }


def _drop(report: LearningReport, label: str) -> float | None:
    before, then = report.measured(BEFORE), report.measured(label)
    return None if before is None or then is None else 100 * (before.right.value - then.right.value)


def _wish(report: LearningReport, label: str) -> float | None:
    found = report.measured(label)
    return None if found is None else found.wish.value


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.fmean(known), 4) if known else None


def main() -> None:
    """Runs all seeds, one after the other."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, nargs="*", default=list(range(2 if is_quick() else SEEDS)))
    options.add_argument("--sessions", type=int, default=10 if is_quick() else FULL.sessions)
    options.add_argument("--problems", type=int, default=40 if is_quick() else FULL.problems)
    options.add_argument("--config", type=Path, help="settings; the defaults where left out")
    options.add_argument("--model", default=MODEL)
    given = options.parse_args()
    settings = replace(FULL, sessions=given.sessions, problems=given.problems)
    started, reports = time.monotonic(), []
    for seed in given.seeds:
        reports.append(asyncio.run(one(seed, settings, given.config, given.model)))
        progress(f"seed {seed}: converged at {reports[-1].converged_at}, {time.monotonic() - started:.0f} s so far")
    finish(figures(reports, model=given.model, config="defaults" if given.config is None else given.config.name))


if __name__ == "__main__":
    main()
