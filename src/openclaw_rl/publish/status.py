"""The status of publishing, and what keeps versions from being served."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from openclaw_rl.core.facts import StoreFacts
from openclaw_rl.core.finding import Finding, Level

REFUSED = 3  # versions in a row


@dataclass(frozen=True, slots=True)
class PublishStatus:
    """The status of publishing, for people. `notice` reports something that needs attention."""

    current: str = ""
    at_gate: int = 0
    owners: int = 0  # users or agents that have their own version
    published: int = 0  # since the program started
    refused: int = 0
    taken_back: int = 0  # versions rolled back because they did worse than the one before, or had no effect
    pinned: str = ""  # the version served by the owner's order, whatever is trained
    last: str = ""
    notice: str = ""


def publish_findings(facts: StoreFacts, status: PublishStatus) -> Iterator[Finding]:
    """Versions that the gate refused in a row, and what needs the owner's attention."""
    if facts.seen.refused_in_a_row >= REFUSED:
        yield Finding(
            Level.MEND,
            "publish",
            f"the gate refused the last {facts.seen.refused_in_a_row} versions, the newest because "
            f"{facts.seen.refused_why}",
            "lower trainer.lr, or see `openclaw-rl versions`; publish.strictness says how narrow the margins are",
        )
    if status.notice:
        yield Finding(Level.MEND, "publish", status.notice, "see `openclaw-rl versions` and the server's log")
