"""Histories of requests under way: a turn's entering need not digest again what its placing digested.

Beside each stands whether its session has answered the same before, or that this is still to be looked up.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from openclaw_rl.collect.prefixes import History
from openclaw_rl.core.message import Message

MOST = 256  # requests under way whose histories are remembered; those of others are digested again
MOST_MESSAGES = 50_000  # of all of them together: the longest histories have ten thousand


@dataclass(slots=True)
class RememberedRequest:
    """One request. `again` tells of a turn that was asked the same, empty where none was, None where nobody looked."""

    messages: tuple[Message, ...]
    history: History
    again: str | None = ""


class RequestMemory:
    """Histories by the messages they are of. What was noted longest ago gives way."""

    def __init__(self, *, most: int = MOST, most_messages: int = MOST_MESSAGES) -> None:
        self._most = most
        self._most_messages = most_messages
        self._held: OrderedDict[int, RememberedRequest] = OrderedDict()
        self.size = 0  # messages held

    def __len__(self) -> int:
        """How many histories are held."""
        return len(self._held)

    def note(self, messages: tuple[Message, ...], history: History, *, again: str | None = "") -> None:
        """Remembers it; the messages are held so that their id stays theirs."""
        self.forget(messages)
        self._held[id(messages)] = RememberedRequest(messages, history, again)
        self.size += len(messages)
        while len(self._held) > self._most or (self.size > self._most_messages and len(self._held) > 1):
            self.size -= len(self._held.popitem(last=False)[1].messages)

    def of(self, messages: tuple[Message, ...]) -> RememberedRequest | None:
        """What was noted of just these messages, where it is remembered."""
        held = self._held.get(id(messages))
        return held if held is not None and held.messages is messages else None

    def let_go(self) -> None:
        """Remembers nothing: what is under way is digested again."""
        self._held.clear()
        self.size = 0

    def forget(self, messages: tuple[Message, ...]) -> None:
        """The request is answered."""
        held = self._held.pop(id(messages), None)
        if held is not None:
            self.size -= len(held.messages)
