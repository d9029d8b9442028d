"""The figures of a plan: per method and user sessions, costs, and effects on the rest."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from math import inf

import msgspec

from openclaw_rl.core.message import Json
from openclaw_rl.evals.personalization.methods import EvalMethod, Mode
from openclaw_rl.evals.personalization.plan import EvalPlan
from openclaw_rl.evals.personalization.trials import (
    AGAIN,
    BEFORE,
    CONVERGED,
    TWICE,
    MeasuredShares,
    Point,
    Trial,
    TrialSession,
)
from openclaw_rl.evals.report import conditions

MOMENTS = (BEFORE, CONVERGED, AGAIN, TWICE, "end")


def figures(plan: EvalPlan, trials: Sequence[Trial]) -> dict[str, Json]:
    """All figures. A value that could not be measured is None, never invented.

    `sessions` and `median` are gated: a first reply counts only if everything about it is right.
    """
    names = [person.name for person in plan.people(0)]
    methods: dict[str, Json] = {}
    for method in plan.methods:
        own = [trial for trial in trials if trial.method == method.name]
        users: dict[str, Json] = {name: user_figures(own, name, plan.mode) for name in names}
        methods[method.name] = {"about": method.about, **users}
    scores = {method.name: _score(trials, method.name, names) for method in plan.methods}
    return {
        "mode": plan.mode.value,
        "methods": methods,
        "best_method": _best(plan.methods, scores, lambda method: method.trains or method.carries),
        "best_baseline": _best(plan.methods, scores, lambda method: not method.is_ours),
        "unsettled_sessions": sum(not session.is_settled for trial in trials for session in trial.sessions),
        "refused": sum(trial.refused for trial in trials),
        "seconds": round(sum(trial.seconds for trial in trials), 1),
        "conditions": conditions_told(plan),
    }


def user_figures(trials: Sequence[Trial], person: str, mode: Mode) -> dict[str, Json]:
    """One user's figures under one method, over the seeds.

    Corrections, hints, turns and samples are counted until the session that converged, or over all if none did.
    Drops and interference are means over the seeds, in percentage points; positive is worse than before.
    """
    own = [trial for trial in trials if person in trial.people]
    gated = [trial.converged_at(person) for trial in own]
    raw = [trial.converged_at(person, gated=False) for trial in own]
    spent = [_until_converged(trial, person) for trial in own]
    ends = [trial.end for trial in own]
    return {
        "sessions": list(gated),
        "median": median(gated),
        "spread": _spread(gated),
        "gated": {"sessions": list(gated), "median": median(gated), "spread": _spread(gated)},
        "raw": {"sessions": list(raw), "median": median(raw), "spread": _spread(raw)},
        "corrections": [sum(session.corrections for session in sessions) for sessions in spent],
        "hints": [sum(len(session.hints) for session in sessions) for sessions in spent],
        "turns": [sum(session.turns for session in sessions) for sessions in spent],
        "samples": [sum(session.samples for session in sessions) for sessions in spent],
        "steps": [trial.steps for trial in own],
        "hints_in_use": [trial.hints_in_use for trial in own],
        "hints_retired": [trial.hints_retired for trial in own],
        "accuracy_drop_points": _mean([_drop(trial, trial.point(CONVERGED, person), person) for trial in own]),
        "accuracy_drop_points_twice": _mean([_drop(trial, trial.point(TWICE), person) for trial in own]),
        "accuracy_drop_points_end": _mean([_drop(trial, trial.end, person) for trial in own]),
        "interference_points": _mean([_interference(trial, person, mode) for trial in own]),
        "others_accuracy_drop_points": _mean([_worst_other(trial, person) for trial in own]),
        "degenerate": sum(point.of(person).degenerate for trial in own for point in trial.points[1:]),
        "degenerate_replies": [
            {"seed": trial.seed, "after_session": point.after_session, "why": list(odd.why), "reply": odd.reply}
            for trial in own
            for point in trial.points[1:]
            for odd in point.of(person).odd
        ],
        "files_changed": _files([session for trial in own for session in trial.sessions_of(person)]),
        "good_after": _mean([_good_after(trial, person) for trial in own]),
        "after_session": [end.after_session for end in ends],
        "moments": {name: _moment(own, person, name) for name in MOMENTS},
    }


def median(sessions: Sequence[int | None]) -> float | None:
    """The median; a seed that never converged counts as later than all that did."""
    if not sessions:
        return None
    found = statistics.median(inf if number is None else number for number in sessions)
    return None if found == inf else found


def mean_median(trials: Sequence[Trial], method: str, people: Sequence[str]) -> float:
    """The mean of the people's medians; infinite if one never converged."""
    found = []
    for person in people:
        own = [trial for trial in trials if trial.method == method and person in trial.people]
        at = median([trial.converged_at(person) for trial in own])
        found.append(inf if at is None else at)
    return statistics.fmean(found)


def _score(trials: Sequence[Trial], method: str, people: Sequence[str]) -> tuple[float, int, float]:
    """Less is better: the mean of the medians; if equal, the seeds that never converged, then the mean."""
    own = [
        trial.converged_at(name)
        for trial in trials
        if trial.method == method
        for name in people
        if name in trial.people
    ]
    there = [number for number in own if number is not None]
    mean = statistics.fmean(there) if there else inf
    return mean_median(trials, method, people), len(own) - len(there), mean


def _best(
    methods: Sequence[EvalMethod], scores: dict[str, tuple[float, int, float]], is_in: Callable[[EvalMethod], bool]
) -> str | None:
    known = [method.name for method in methods if is_in(method) and scores[method.name][0] < inf]
    return min(known, key=lambda name: scores[name]) if known else None


def _until_converged(trial: Trial, person: str) -> tuple[TrialSession, ...]:
    return trial.sessions_of(person)[: trial.converged_at(person)]


def _spread(sessions: Sequence[int | None]) -> Json:
    """The minimum and maximum; None for a seed that never converged."""
    if not sessions:
        return None
    known = [number for number in sessions if number is not None]
    return [min(known) if known else None, max(known) if len(known) == len(sessions) else None]


def _points_lost(before: int, then: int, of: int) -> float:
    return 100 * (before - then) / of


def _drop(trial: Trial, point: Point | None, person: str) -> float | None:
    if point is None:
        return None
    before, then = trial.points[0].of(person), point.of(person)
    return _points_lost(before.right, then.right, then.of)


def _interference(trial: Trial, person: str, mode: Mode) -> float | None:
    """Wishes lost to other users' teaching.

    Separate: the most that another user's wish lost from before to the end. Joint: what this user's own wish lost from
    convergence to the end, while the others continued to teach.
    """
    if mode is Mode.JOINT:
        held = trial.point(CONVERGED, person)
        return (
            None if held is None else _points_lost(held.of(person).wish, trial.end.of(person).wish, held.of(person).of)
        )
    return max(
        (_points_lost(old.wish, trial.end.of(old.person).wish, old.of) for old in _others(trial, person)), default=None
    )


def _worst_other(trial: Trial, person: str) -> float | None:
    return max(
        (_points_lost(old.right, trial.end.of(old.person).right, old.of) for old in _others(trial, person)),
        default=None,
    )


def _others(trial: Trial, person: str) -> list[MeasuredShares]:
    return [shares for shares in trial.points[0].shares if shares.person != person]


def _files(sessions: Sequence[TrialSession]) -> float | None:
    asked = [session.filed for session in sessions if session.filed is not None]
    return round(sum(asked) / len(asked), 4) if asked else None


def _good_after(trial: Trial, person: str) -> float | None:
    """The share of first replies that counted in the sessions after the one that converged."""
    at = trial.converged_at(person)
    later = trial.sessions_of(person)[at:] if at is not None else ()
    return sum(session.is_good for session in later) / len(later) if later else None


def _moment(trials: Sequence[Trial], person: str, label: str) -> Json:
    """Means over the seeds at one moment; None if no seed reached it."""
    found = [trial.end if label == "end" else trial.point(label, person) for trial in trials]
    points = [point for point in found if point is not None]
    known = [point.of(person) for point in points]
    if not known:
        return None
    bare = [shares.bare / shares.of for shares in known if shares.bare is not None]
    return {
        "seeds": len(known),
        "problems": known[0].of,
        "wish": _mean([shares.wish / shares.of for shares in known]),
        "wish_bare": _mean(list(bare)),
        "accuracy": _mean([shares.right / shares.of for shares in known]),
        "good": _mean([shares.good / shares.of for shares in known]),
        "degenerate": sum(shares.degenerate for shares in known),
        "mean_chars": _mean([shares.mean_chars for shares in known]),
        "prompt_tokens": _mean([shares.prompt_tokens for shares in known]),
        "others_wish": _others_share(points, person, lambda shares: shares.wish),
        "others_accuracy": _others_share(points, person, lambda shares: shares.right),
    }


def _others_share(points: Sequence[Point], person: str, count: Callable[[MeasuredShares], int]) -> Json:
    """Means over the seeds for everybody else."""
    names = [shares.person for shares in points[0].shares if shares.person != person]
    return {name: _mean([count(point.of(name)) / point.of(name).of for point in points]) for name in names}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.fmean(known), 4) if known else None


def conditions_told(plan: EvalPlan) -> Json:
    """The conditions of a plan's run."""
    settings: dict[str, Json] = msgspec.to_builtins(asdict(plan.settings))
    own = conditions(model=plan.model, seeds=plan.seeds, repeats=1)
    return {
        **own,
        **settings,
        "users": plan.users,
        "judge": plan.judge or "the recipe's",
        "problems_from": plan.exercises.name,
        "trials_at_once": plan.at_once,
    }
