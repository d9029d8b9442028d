"""The figures of bench-transfer over all of its runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from benchmarks.common import Figures, conditions
from openclaw_rl.evals.learning import AFTER, BEFORE, RunSettings

if TYPE_CHECKING:
    from benchmarks.transfer import Outcome

TAUGHT, NEVER = (BEFORE, AFTER), ("never before", "never after")
TAUGHT_TOLD, NEVER_TOLD = ("told", AFTER), ("never told", "never after")


def figures(found: Sequence[Outcome], *, judge: str, settings: RunSettings) -> Figures:
    """`sessions` by model, user and seed; drops in points, the worst of any single run; lengths by the base's own.

    `accuracy_drop_from_told` and `length_ratio` compare with the base model that has the wish as a hint in its prompt,
    which is what can be reached (lengths over the wishes that are not about length); `length_over_before` with the base
    as it is.
    """
    met = [math.inf if run.converged_at is None else run.converged_at for run in found]
    even = [run for run in found if not run.is_about_length]
    return {
        "models": _distinct(run.model for run in found),
        "sessions": _by_user(found),
        "median": _finite(statistics.median(met)) if met else None,
        "worst": _finite(max(met)) if met else None,
        "never_converged": [f"{run.model}/{run.user}/{run.seed}" for run in found if run.converged_at is None],
        "accuracy_drop_points": {"taught": _drops(found, TAUGHT), "never_corrected": _drops(found, NEVER)},
        "accuracy_drop_from_told": {"taught": _drops(found, TAUGHT_TOLD), "never_corrected": _drops(found, NEVER_TOLD)},
        "wish_end_worst": min((run.moments[AFTER].wish for run in found), default=None),
        "wish_end_mean": _mean([run.moments[AFTER].wish for run in found]),
        "wish_told_mean": _mean([run.moments["told"].wish for run in found]),
        "length_ratio": _spread([run.moments[AFTER].chars / run.moments["told"].chars for run in even]),
        "length_over_before": _spread([run.moments[AFTER].chars / run.moments[BEFORE].chars for run in even]),
        "corrections": sum(run.corrections for run in found),
        "hinted": sum(_hinted(run) for run in found),
        "unsettled_sessions": sum(run.unsettled for run in found),
        "requests_refused": sum(run.requests_refused for run in found),
        "versions_refused": sum(run.versions_refused for run in found),
        "seconds": round(sum(run.seconds for run in found)),
        "judge": judge,
        "conditions": conditions("made models", threads=1, seeds=sorted({run.seed for run in found}), repeats=1)
        | {"temperature": settings.temperature, "sessions": settings.sessions, "problems": settings.problems},
    }


def _by_user(found: Sequence[Outcome]) -> dict[str, dict[str, list[int | None]]]:
    table: dict[str, dict[str, list[int | None]]] = {}
    for run in found:
        table.setdefault(run.model, {}).setdefault(run.user, []).append(run.converged_at)
    return table


def _drops(found: Sequence[Outcome], labels: tuple[str, str]) -> dict[str, float | None]:
    drops = [100 * (run.moments[labels[0]].right - run.moments[labels[1]].right) for run in found]
    return {"worst": round(max(drops), 2) if drops else None, "mean": _mean(drops)}


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    """The median, and the value that is furthest from 1 either way."""
    if not values:
        return {"median": None, "worst": None}
    worst = max(values, key=lambda value: abs(math.log(max(value, 1e-9))))
    return {"median": round(statistics.median(values), 3), "worst": round(worst, 3)}


def _hinted(run: Outcome) -> int:
    """Corrections in which the judge found a hint."""
    turns = [turn for session in run.heard for turn in _list(session["turns"])]
    return sum(bool(turn["hints"]) and not turn["met"] for turn in turns)


def _list(value: object) -> list[dict[str, object]]:
    assert isinstance(value, list)
    return value


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _mean(values: Sequence[float]) -> float | None:
    return round(statistics.fmean(values), 4) if values else None


def _finite(value: float) -> float | None:
    return None if value == math.inf else value
