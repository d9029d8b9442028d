"""Findings about an installation, for its owner: how much each matters, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    NOTE = "note"  # worth knowing
    MEND = "mend"  # nothing is learned, or soon nothing will be, until the owner acts


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding, its stage, and what to do."""

    level: Level
    stage: str
    said: str
    fix: str = ""

    @property
    def is_warning(self) -> bool:
        """Whether it needs attention."""
        return self.level is Level.MEND


def many(count: int, what: str) -> str:
    """A count with its noun: "1 turn", "2 turns"."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
