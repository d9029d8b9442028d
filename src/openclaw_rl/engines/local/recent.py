"""A least-recently-used cache by text, bounded by its number of entries and its sum of characters."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

Held = TypeVar("Held")


class Recent(Generic[Held]):
    """Values by text. The last one put in stays, however long it is. Its owner does the locking."""

    def __init__(self, *, most: int, most_chars: int) -> None:
        self._most = most
        self._most_chars = most_chars
        self._held: OrderedDict[str, Held] = OrderedDict()
        self.chars = 0

    def __len__(self) -> int:
        """The number of entries."""
        return len(self._held)

    def __contains__(self, text: str) -> bool:
        """Whether it is kept; this does not count as a use."""
        return text in self._held

    def get(self, text: str) -> Held | None:
        """The value of the text, which counts as a use."""
        if text in self._held:
            self._held.move_to_end(text)
        return self._held.get(text)

    def put(self, text: str, value: Held) -> None:
        """Keeps the value, instead of an earlier one of the same text, and drops what exceeds the bounds."""
        self.chars += 0 if text in self._held else len(text)
        self._held[text] = value
        self._held.move_to_end(text)
        while len(self._held) > self._most or (self.chars > self._most_chars and len(self._held) > 1):
            gone, _ = self._held.popitem(last=False)
            self.chars -= len(gone)
