"""What every stage has in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from openclaw_rl.core.facts import StoreFacts
from openclaw_rl.core.finding import Finding


@dataclass(frozen=True, slots=True)
class StageReport:
    """Where a stage stands.

    `status` is a dataclass: its part of the status that is shown to people. `is_settled` says that the stage has
    nothing to do until something new is said. `problem` is its last one, empty where all is well.
    """

    name: str
    status: object
    is_settled: bool
    problem: str = ""
    findings: tuple[Finding, ...] = ()


class Stage(Protocol):
    """A loop that runs while the server serves: it reads rows of the store and writes rows for the next one.

    It may be cancelled at any moment, and run again: what it was doing is in the store.
    """

    @property
    def name(self) -> str:
        """By which the log, the status and the doctor know it."""
        ...

    async def run(self) -> None:
        """Works until cancelled."""
        ...

    def let_go(self) -> None:
        """Holds nothing in memory of any turn, as after a restart; not while it runs."""
        ...

    def gauges(self) -> Mapping[str, float]:
        """Its numbers by their names, for whoever watches the server."""
        ...

    async def report(self, facts: StoreFacts) -> StageReport:
        """Its state at this moment; `facts` are the store's."""
        ...
