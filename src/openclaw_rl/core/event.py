"""What has just been committed to the store, for code that counts, draws or traces it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from openclaw_rl.core.message import Json
from openclaw_rl.core.version import PolicyVersion


class EventKind(StrEnum):
    """What happened."""

    TURN = "turn"  # a turn was stored
    STATE = "state"  # a turn moved to another state of the ledger
    STEP = "step"  # a step was taken
    GATE = "gate"  # a version passed the gate or was refused
    SERVED = "served"  # a version is now served


@dataclass(frozen=True, slots=True)
class StoreEvent:
    """One event, with ids and numbers only: no text of users or models.

    `turns` are the turns it is about. `began_s` is when it began, in seconds since the epoch; None if only its end
    is known.
    """

    kind: EventKind
    turns: tuple[str, ...] = ()
    version: PolicyVersion | None = None
    began_s: float | None = None
    facts: Mapping[str, Json] = field(default_factory=dict)


Listener = Callable[[Sequence[StoreEvent]], None]


def nobody(events: Sequence[StoreEvent]) -> None:
    """Nobody listens."""
