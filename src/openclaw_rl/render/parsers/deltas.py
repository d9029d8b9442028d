"""What tokens add to a reply, and what every parser of a token stream can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from openclaw_rl.core.completion import Span
from openclaw_rl.core.message import Message


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of what the model thinks before it speaks."""

    text: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of what it says."""

    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A tool call begins."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """More of a tool call's arguments, as the model writes them."""

    index: int
    text: str


ReplyDelta = ReasoningDelta | TextDelta | CallDelta | ArgumentsDelta


class StreamParser(Protocol):
    """One answer, read as it is sampled. Feeding ids one by one or many at once gives the same deltas."""

    def feed(self, tokens: Sequence[int]) -> list[ReplyDelta]:
        """What these ids add."""
        ...

    def finish(self) -> list[ReplyDelta]:
        """What was held back, once no more ids come."""
        ...

    def message(self) -> Message:
        """The reply so far; whole after `finish`."""
        ...

    def spans(self) -> tuple[Span, ...]:
        """Which of the ids fed are what; they tile them."""
        ...

    @property
    def calls_ended(self) -> int:
        """How many tool calls are complete."""
        ...
