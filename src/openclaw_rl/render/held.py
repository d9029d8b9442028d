"""A cache of recently used values, limited in number and total size."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """Values by key; the least recently used is dropped. Thread-safe.

    A value larger than the whole limit is not stored.
    """

    def __init__(self, *, most: int, most_size: int) -> None:
        self._most = most
        self._most_size = most_size
        self._held: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._lock = Lock()
        self.size = 0

    def __len__(self) -> int:
        """The number of values."""
        return len(self._held)

    def let_go(self) -> None:
        """Drops all values."""
        with self._lock:
            self._held.clear()
            self.size = 0

    def get(self, key: Key) -> Value | None:
        """The value of this key."""
        with self._lock:
            found = self._held.get(key)
            if found is None:
                return None
            self._held.move_to_end(key)
            return found[0]

    def put(self, key: Key, value: Value, *, size: int) -> None:
        """Stores a value, in place of the earlier one of this key."""
        with self._lock:
            before = self._held.pop(key, None)
            if before is not None:
                self.size -= before[1]
            if size > self._most_size:
                return
            self._held[key] = value, size
            self.size += size
            while len(self._held) > self._most or self.size > self._most_size:
                self.size -= self._held.popitem(last=False)[1][1]
