"""What followed a turn: a user's words, the results of its tool calls, or an environment's observation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from openclaw_rl.core.message import Message, Role


class NextStateSource(StrEnum):
    """Who spoke next."""

    USER = "user"
    TOOL = "tool"
    ENVIRONMENT = "environment"


@dataclass(frozen=True, slots=True)
class NextState:
    """The messages after a reply up to the next reply, without the client's own inserts."""

    turn: str
    messages: tuple[Message, ...]
    source: NextStateSource

    def __post_init__(self) -> None:
        if not self.messages:
            raise ValueError("a next state holds at least one message; use None if there is none")
        strangers = {item.role for item in self.messages} - {Role.USER, Role.TOOL}
        if strangers:
            raise ValueError(f"system and assistant messages cannot be a next state: {sorted(strangers)}")

    @property
    def text(self) -> str:
        """All text, in order."""
        return "\n".join(item.text for item in self.messages)


@dataclass(frozen=True, slots=True)
class Feedback:
    """A thumb up (1), down (-1) or neither (0), and what the user wrote with it. It outranks the judge."""

    turn: str
    score: int
    text: str | None
    at_s: float

    def __post_init__(self) -> None:
        if self.score not in (-1, 0, 1):
            raise ValueError(f"a score is -1, 0 or 1, not {self.score}")
