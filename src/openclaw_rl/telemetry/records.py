"""The data sent to sinks: events as plain JSON, and their numbers with the names of curves."""

from __future__ import annotations

import math
from collections.abc import Mapping

from openclaw_rl.core.event import EventKind, StoreEvent
from openclaw_rl.core.message import Json
from openclaw_rl.core.version import SHARED

Record = dict[str, Json]
LONGEST = 200  # letters of a number's name


def numbers_of(event: StoreEvent, at_s: float) -> Record | None:
    """The numbers of a step or a gate, by version: `x` is the version's number. None for events without numbers.

    Steps of users' and agents' versions are under `own_step` and `own_gate`, without the owner's name.
    """
    if event.kind not in (EventKind.STEP, EventKind.GATE) or event.version is None:
        return None
    rows: dict[str, float] = {}
    metrics = event.facts.get("metrics")
    if isinstance(metrics, dict):
        rows |= flat(metrics)
    if event.kind is EventKind.STEP:
        ended_s, began_s = event.facts.get("ended_s"), event.began_s
        if isinstance(ended_s, float) and began_s is not None:
            rows["seconds"] = ended_s - began_s
        rows |= flat({name: event.facts.get(name) for name in ("samples", "dropped")})
    else:
        rows["passed"] = float(event.facts.get("status") == "live")
    group = event.kind.value if event.version.scope == SHARED else f"own_{event.kind.value}"
    return {"rows": {f"{group}/{name}": value for name, value in rows.items()}, "x": event.version.number, "at_s": at_s}


def evaluation(name: str, figures: Mapping[str, Json], at_s: float) -> Record:
    """The numbers of an evaluation, under `eval/NAME`."""
    return {"rows": {f"eval/{name}/{key}": value for key, value in flat(figures).items()}, "x": 0, "at_s": at_s}


def event_record(event: StoreEvent, at_s: float) -> Record:
    """The whole event."""
    return {
        "kind": event.kind.value,
        "turns": list(event.turns),
        "version": None if event.version is None else str(event.version),
        "began_s": event.began_s,
        "at_s": at_s,
        "facts": dict(event.facts),
    }


def flat(held: Mapping[str, Json], above: str = "") -> dict[str, float]:
    """The finite numbers in nested mappings, by their path. Lists and texts are left out."""
    found: dict[str, float] = {}
    for name, value in held.items():
        path = f"{above}{name}"[:LONGEST]
        if isinstance(value, dict):
            found |= flat(value, f"{path}/")
        elif isinstance(value, bool | int | float) and math.isfinite(value):
            found[path] = float(value)
    return found
