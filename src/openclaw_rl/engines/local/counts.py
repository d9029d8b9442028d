"""What the engine counts of itself."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

STEPS_TIMED = 1000


@dataclass(slots=True)
class Counts:
    """Since the process started; `times_s` are those of the last steps."""

    sampled: int = 0
    read: int = 0
    reused: int = 0
    steps: int = 0
    times_s: deque[float] = field(default_factory=lambda: deque(maxlen=STEPS_TIMED))

    def time_ms(self, share: float) -> float:
        """The step time below which that share of them lies."""
        times = sorted(self.times_s) or [0.0]
        return times[int(len(times) * share)] * 1e3
