"""A memory prompt: what a user was found to want, kept word for word and put in front of everything they ask."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

HEADING = "What this user has wished before:"
MOST_NOTES = 16
MOST_CHARS = 300  # of one


@dataclass(slots=True)
class Memory:
    """One user's notes, oldest first; one said before is not kept twice, and the oldest make room."""

    notes: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Keeps a note."""
        note = " ".join(text.split())[:MOST_CHARS]
        if note and _words(note) not in [_words(kept) for kept in self.notes]:
            self.notes = [*self.notes, note][-MOST_NOTES:]

    @property
    def system(self) -> str:
        """The system text; empty while there is no note."""
        return "\n".join([HEADING, *(f"- {note}" for note in self.notes)]) if self.notes else ""


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())
