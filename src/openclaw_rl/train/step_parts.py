"""What the steps of all scopes share: the store, the trainer, the settings, and what is known of this machine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from openclaw_rl.core.message import Json
from openclaw_rl.core.protocols import Trainer
from openclaw_rl.core.sample import Sample, Wants
from openclaw_rl.store.db import Store
from openclaw_rl.train.costs import Costs
from openclaw_rl.train.settings import TrainSettings
from openclaw_rl.train.under_way import StepInProgress


async def holds_alone(rehearsal: Sample, since: Sequence[str]) -> bool:
    """There is no model to ask: any later wish may speak against it."""
    return not since


@dataclass(frozen=True, slots=True)
class StepParts:
    """What the steps of all scopes share; see `TrainStage`.

    `holds` says whether a rehearsal sample may be read again, given its user's hints since its reply.
    """

    store: Store
    trainer: Trainer
    settings: TrainSettings
    wants: Wants
    home: Path
    recipe: Mapping[str, Json]
    idle_s: Callable[[], float]
    clock: Callable[[], float]
    now: Callable[[], float]
    holds: Callable[[Sample, Sequence[str]], Awaitable[bool]] = holds_alone
    costs: Costs = field(default_factory=Costs)
    under_way: StepInProgress = field(default_factory=StepInProgress)
