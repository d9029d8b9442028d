"""What every stage has in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from openclaw_rl.core.facts import StoreFacts
from openclaw_rl.core.finding import Finding


@dataclass(frozen=True, slots=True)
class StageReport:
    """The state of a stage.

    `status` is a dataclass: its part of the status for people. `is_settled` says that the stage has
    nothing to do until something new arrives. `problem` is the last one, empty if all is well.
    """

    name: str
    status: object
    is_settled: bool
    problem: str = ""
    findings: tuple[Finding, ...] = ()


class Stage(Protocol):
    """A loop that runs while the server serves: it reads rows of the store and writes rows for the next one.

    It may be cancelled at any moment, and run again: its work is in the store.
    """

    @property
    def name(self) -> str:
        """Its name in the log, the status and the doctor."""

    async def run(self) -> None:
        """Works until cancelled."""

    def let_go(self) -> None:
        """Clears its memory of turns, as after a restart; only while it does not run."""

    def gauges(self) -> Mapping[str, float]:
        """Its metrics by name."""

    async def report(self, facts: StoreFacts) -> StageReport:
        """Its state at this moment; `facts` are the store's."""
