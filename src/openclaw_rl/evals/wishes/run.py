"""Twelve wishes of one user, taught one after another to one model: how many hold in the end, and what they cost."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from random import Random

from openclaw_rl.core.message import Json
from openclaw_rl.evals.people import rules
from openclaw_rl.evals.people.exercises import Exercises
from openclaw_rl.evals.people.jobs import Person
from openclaw_rl.evals.people.wishes import HiddenWish, WishKind, detailed, friendly, natural
from openclaw_rl.evals.personalization.figures import conditions_told
from openclaw_rl.evals.personalization.plan import EvalPlan
from openclaw_rl.evals.personalization.trials import TOLD, Point, Trial
from openclaw_rl.tiny import manners
from openclaw_rl.tiny.styles import Style

HOLDS = 0.8  # the share of first replies to unseen tasks that must follow a wish for it to count as learned
USER = "user"
_STYLES = {Style.NATURAL: natural, Style.DETAILED: detailed, Style.FRIENDLY: friendly}
_FIRST, _LAST, _STYLE = manners.Aspect.FIRST, manners.Aspect.LAST, manners.Aspect.STYLE
TWELVE = (
    manners.Wish(_STYLE, Style.NATURAL, manners.TaskKind.SOLVE),
    manners.Wish(_FIRST, "Hello friend!", manners.TaskKind.SOLVE),
    manners.Wish(_LAST, "Stay curious!", manners.TaskKind.SOLVE),
    manners.Wish(_STYLE, Style.DETAILED, manners.TaskKind.GRADE),
    manners.Wish(_FIRST, "Good day.", manners.TaskKind.GRADE),
    manners.Wish(_LAST, "Best wishes.", manners.TaskKind.GRADE),
    manners.Wish(_STYLE, Style.FRIENDLY, manners.TaskKind.COMMENT),
    manners.Wish(_FIRST, "Hey there!", manners.TaskKind.COMMENT),
    manners.Wish(_LAST, "See you soon!", manners.TaskKind.COMMENT),
    manners.Wish(_FIRST, "Okay!", manners.TaskKind.THANKS),
    manners.Wish(_LAST, "Any questions?", manners.TaskKind.THANKS),
    manners.Wish(_LAST, "That is all.", manners.TaskKind.FILED),
)


def as_wish(told: manners.Wish) -> HiddenWish:
    """A wish of the toy world about one kind of reply, with the strict rule for it."""
    assert told.scope is not None
    kind = told.scope

    def follows(text: str) -> bool:
        return _STYLES[told.style](text) if told.style is not None else told.holds(rules.plain(text))

    def stated(rng: Random) -> str:
        return told.stated(kind, rng)

    verb = {_STYLE: "style", _FIRST: "begin with", _LAST: "end with"}[told.aspect]
    return HiddenWish(f"{kind}-{told.aspect}", WishKind(kind), f"{verb} {told.value}", follows, told.correction, stated)


def one_user(exercises: Exercises, seed: int) -> tuple[Person, ...]:
    """The same user twelve times, with a wish each time; the order is shuffled by the seed."""
    wishes = [as_wish(told) for told in TWELVE]
    Random(seed).shuffle(wishes)
    return tuple(Person(wish.name, wish, exercises, seed, user=USER) for wish in wishes)


def wish_figures(plan: EvalPlan, trials: Sequence[Trial]) -> dict[str, Json]:
    """Per carry: wishes followed at the end, as served and with nothing added, and tokens added to a prompt."""
    carries: dict[str, Json] = {}
    for method in plan.methods:
        own = [trial for trial in trials if trial.method == method.name]
        held = [_held(trial) for trial in own]
        carries[method.name] = {
            "held": statistics.median(held),
            "held_by_seed": list(held),
            "held_bare_by_seed": [_held(trial, is_bare=True) for trial in own],
            "told_by_seed": [len(_told(trial)) for trial in own],
            "held_of_told_by_seed": [_held(trial, _told(trial)) for trial in own],
            "taught_by_seed": [sum(trial.converged_at(name) is not None for name in trial.people) for trial in own],
            "of": len(own[0].people),
            "prompt_tokens_added": round(statistics.fmean(_tokens_added(trial) for trial in own), 1),
            "accuracy_drop_points": round(statistics.fmean(_accuracy_drop(trial) for trial in own), 2),
            "degenerate": sum(shares.degenerate for trial in own for shares in trial.end.shares),
            "hints_in_use": [trial.hints_in_use for trial in own],
            "hints_retired": [trial.hints_retired for trial in own],
            "sessions": [len(trial.sessions) for trial in own],
            "corrections": [sum(session.corrections for session in trial.sessions) for trial in own],
            "wishes": {name: _wish(own, name) for name in sorted(own[0].people)},
        }
    return {
        "carries": carries,
        "holds_from": HOLDS,
        "seconds": round(sum(trial.seconds for trial in trials), 1),
        "conditions": conditions_told(plan),
    }


def _held(trial: Trial, among: Sequence[str] | None = None, *, is_bare: bool = False) -> int:
    """Wishes that are followed at the end, of all or of these."""
    return len([name for name in _followed(trial.end, is_bare=is_bare) if among is None or name in among])


def _told(trial: Trial) -> list[str]:
    """The wishes that the untrained model follows with all twelve as hints in its prompt."""
    point = trial.point(TOLD)
    return [] if point is None else _followed(point)


def _followed(point: Point, *, is_bare: bool = False) -> list[str]:
    counts = [
        (shares.person, shares.bare if is_bare and shares.bare is not None else shares.wish, shares.of)
        for shares in point.shares
    ]
    return [name for name, wish, of in counts if wish / of >= HOLDS]


def _tokens_added(trial: Trial) -> float:
    grown = [shares.prompt_tokens - trial.points[0].of(shares.person).prompt_tokens for shares in trial.end.shares]
    return statistics.fmean(grown)


def _accuracy_drop(trial: Trial) -> float:
    lost = [(trial.points[0].of(shares.person).right - shares.right) / shares.of for shares in trial.end.shares]
    return 100 * statistics.fmean(lost)


def _wish(trials: Sequence[Trial], name: str) -> Json:
    before = [trial.points[0].of(name) for trial in trials]
    end = [trial.end.of(name) for trial in trials]
    return {
        "converged_at": [trial.converged_at(name) for trial in trials],
        "wish_before": round(statistics.fmean(shares.wish / shares.of for shares in before), 4),
        "wish_end": round(statistics.fmean(shares.wish / shares.of for shares in end), 4),
        "accuracy_end": round(statistics.fmean(shares.right / shares.of for shares in end), 4),
    }
