"""What was used of late by its text, within a number and a sum of characters; what was unused for longest goes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

Held = TypeVar("Held")


class Recent(Generic[Held]):
    """Values by text. The last one put in stays, however long it is. Locks are its owner's."""

    def __init__(self, *, most: int, most_chars: int) -> None:
        self._most = most
        self._most_chars = most_chars
        self._held: OrderedDict[str, Held] = OrderedDict()
        self.chars = 0

    def __len__(self) -> int:
        """How many are held."""
        return len(self._held)

    def __contains__(self, text: str) -> bool:
        """Whether it is held; that is no use of it."""
        return text in self._held

    def get(self, text: str) -> Held | None:
        """What is held of it, which is used with that."""
        if text in self._held:
            self._held.move_to_end(text)
        return self._held.get(text)

    def put(self, text: str, value: Held) -> None:
        """Holds it, in place of what was held of the same text, and lets go of what is too much."""
        self.chars += 0 if text in self._held else len(text)
        self._held[text] = value
        self._held.move_to_end(text)
        while len(self._held) > self._most or (self.chars > self._most_chars and len(self._held) > 1):
            gone, _ = self._held.popitem(last=False)
            self.chars -= len(gone)
