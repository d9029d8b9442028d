"""A prompt: the ids a model reads, and which message each of them came from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Segment:
    """The ids `tokens[start:stop]` of a prompt and the digest of the message (or messages) they render."""

    start: int
    stop: int
    key: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids in reading order.

    `segments` cover the ids without gaps, one for each message or run of messages the template renders as one; the last
    is the template's text before an answer. Empty if ids came from a client as ids. `continued` counts the
    leading ids that are, id for id, those of the served turn this prompt continues.
    """

    tokens: tuple[int, ...]
    segments: tuple[Segment, ...] = ()
    continued: int = 0
    images: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.tokens:
            raise ValueError("a prompt holds at least one token")
        at = 0
        for segment in self.segments:
            if segment.start != at or segment.stop < segment.start:
                raise ValueError(f"segments leave a gap at {at}")
            at = segment.stop
        if self.segments and at != len(self.tokens):
            raise ValueError(f"segments cover {at} of {len(self.tokens)} tokens")
        if not 0 <= self.continued <= len(self.tokens):
            raise ValueError(f"{self.continued} of {len(self.tokens)} tokens cannot be continued")

    def __len__(self) -> int:
        """How many ids."""
        return len(self.tokens)
