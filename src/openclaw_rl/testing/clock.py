"""A clock that stands still until it is moved."""

from __future__ import annotations


class Clock:
    """Call it for the time in seconds; `advance` moves it forward."""

    def __init__(self, now_s: float = 1_000_000.0) -> None:
        self._now_s = now_s

    def __call__(self) -> float:
        """The time it is."""
        return self._now_s

    def advance(self, seconds: float) -> float:
        """Moves forward and returns the new time. Raises ValueError for a move back."""
        if seconds < 0:
            raise ValueError(f"a clock does not go back {-seconds} s")
        self._now_s += seconds
        return self._now_s
