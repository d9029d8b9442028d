"""What the engine counts of itself."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

STEPS_TIMED = 1000


@dataclass(slots=True)
class Counts:
    """Since the process started; `times_s` are those of the last steps."""

    sampled: int = 0
    read: int = 0
    reused: int = 0
    steps: int = 0
    clock: Callable[[], float] = time.perf_counter
    times_s: deque[float] = field(default_factory=lambda: deque(maxlen=STEPS_TIMED))

    def step(self, begin: float, read: int) -> float:
        """Enters a step that began then and read so many tokens of prompts; the seconds it took."""
        self.read += read
        self.steps += 1
        self.times_s.append(self.clock() - begin)
        return self.times_s[-1]

    def time_ms(self, share: float) -> float:
        """The step time below which that share of them lies."""
        times = sorted(self.times_s) or [0.0]
        return times[int(len(times) * share)] * 1e3
