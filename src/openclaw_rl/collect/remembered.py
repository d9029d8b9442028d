"""Histories of requests under way, so that a turn's entering need not digest again what its placing digested."""

from __future__ import annotations

from collections import OrderedDict

from openclaw_rl.collect.prefixes import History
from openclaw_rl.core.message import Message

MOST = 256  # requests under way whose histories are remembered; those of others are digested again
MOST_MESSAGES = 50_000  # of all of them together: the longest histories have ten thousand


class Remembered:
    """Histories by the messages they are of. What was noted longest ago gives way."""

    def __init__(self, *, most: int = MOST, most_messages: int = MOST_MESSAGES) -> None:
        self._most = most
        self._most_messages = most_messages
        self._held: OrderedDict[int, tuple[tuple[Message, ...], History]] = OrderedDict()
        self.size = 0  # messages held

    def __len__(self) -> int:
        """How many histories are held."""
        return len(self._held)

    def note(self, messages: tuple[Message, ...], history: History) -> None:
        """Remembers it; the messages are held so that their id stays theirs."""
        self.forget(messages)
        self._held[id(messages)] = (messages, history)
        self.size += len(messages)
        while len(self._held) > self._most or (self.size > self._most_messages and len(self._held) > 1):
            gone, _ = self._held.popitem(last=False)[1]
            self.size -= len(gone)

    def of(self, messages: tuple[Message, ...]) -> History | None:
        """The history of just these messages, where it is remembered."""
        held = self._held.get(id(messages))
        return held[1] if held is not None and held[0] is messages else None

    def forget(self, messages: tuple[Message, ...]) -> None:
        """The request is answered."""
        held = self._held.pop(id(messages), None)
        if held is not None:
            self.size -= len(held[0])
