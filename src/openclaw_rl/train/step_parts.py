"""What the steps of all scopes share: the store, the trainer, the settings, and what is known of this machine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from openclaw_rl.core.adapter import Adapter, StepReport
from openclaw_rl.core.message import Json
from openclaw_rl.core.sample import Sample, Wants
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.store.db import Store
from openclaw_rl.train.costs import Costs
from openclaw_rl.train.settings import TrainStageSettings
from openclaw_rl.train.under_way import UnderWay


class TrainerHandle(Protocol):
    """A trainer that lives in a process of its own. Its calls raise TrainerError, and it can be called again then."""

    async def step(
        self, samples: Sequence[Sample], *, resume: Path | None, under: Path | None = None, gentleness: int = 0
    ) -> StepReport:
        """One step that starts from exactly the weights in `resume`, None being fresh ones, on top of those in `under`.

        That holds also where this trainer has since gone on from there: what was never committed, or refused at the
        gate, must not come back. Without `under` the weights stand on the base model. `gentleness` is how often
        versions that had learned from these samples were refused: the more often, the smaller the step begins.
        """
        ...

    async def rebase(self, *, resume: Path, under: Path | None) -> None:
        """Puts the weights in `resume` on top of those in `under`, to be exported so."""
        ...

    async def export(self, folder: Path, version: PolicyVersion) -> Adapter:
        """Writes the weights of the last step, and beside them what it takes to go on from there."""
        ...


async def holds_alone(rider: Sample, since: Sequence[str]) -> bool:
    """Nobody is there to ask: whatever was wished since may speak against it."""
    return not since


@dataclass(frozen=True, slots=True)
class StepParts:
    """What the steps of all scopes share; see `TrainStage`.

    `holds` tells whether a rider may be read again, given its user's hints since it was said.
    """

    store: Store
    trainer: TrainerHandle
    settings: TrainStageSettings
    wants: Wants
    home: Path
    recipe: Mapping[str, Json]
    idle_s: Callable[[], float]
    clock: Callable[[], float]
    now: Callable[[], float]
    holds: Callable[[Sample, Sequence[str]], Awaitable[bool]] = holds_alone
    costs: Costs = field(default_factory=Costs)
    under_way: UnderWay = field(default_factory=UnderWay)
