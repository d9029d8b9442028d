"""How long steps take, and how many prompt tokens one may read so that it ends in time for the running rows."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

STEPS_TIMED = 1000
IDLE_FACTOR = 8  # a step without running streams may take this many times the target
LEAST, MOST = 8, 1024  # tokens; more than 1,024 gain nothing and cost memory
LEAST_IDLE = 64  # of a prompt while nothing is decoded: a product of fewer rows mostly waits for the weights
MEASURED_EVERY = 32  # steps with prompts; then one reads none, so that the rows' own time is known
MEASURED = 5  # such steps of which the middle one counts
NO_STALL = 4  # times what was expected: a longer step was stalled by something else


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
        """Records a step that began at `begin` and read this many prompt tokens; returns the seconds it took."""
        self.read += read
        self.steps += 1
        self.times_s.append(self.clock() - begin)
        return self.times_s[-1]

    def time_ms(self, share: float) -> float:
        """The step time that this share of the steps stays below."""
        times = sorted(self.times_s) or [0.0]
        return times[int(len(times) * share)] * 1e3


@dataclass(slots=True)
class Pace:
    """How many prompt tokens a step may read, so that it ends in time for the running streams.

    Learns what work costs here. Work is counted in multiply-adds; those of attention count more. A step that reads
    prompts takes the larger of the rows' own time and `launch / rate`, and `work / rate` beyond it.
    """

    per_token: float  # weights read by a token
    per_pair: float  # numbers of keys and values that a token reads of each token before it
    target_s: float
    rate: float = 2e10  # work a second; a careful first guess
    launch: float = 0.0  # the price of a pass that reads prompts, however short, in work: kernels launched one by one
    rows_s: float = 0.002  # what the rows alone take
    measured_rows: int = 0  # how many rows that was measured with, 0 before the first
    unmeasured: int = 0  # steps since then
    times_s: deque[float] = field(default_factory=lambda: deque(maxlen=MEASURED))

    def tokens(self, start: int, *, budget_s: float) -> int:
        """How many tokens from position `start` on fit into the time: work = n a + b (n start + n n / 2)."""
        work = budget_s * self.rate
        linear = self.per_token + self.per_pair * start
        half = self.per_pair / 2
        count = (-linear + (linear * linear + 4 * half * work) ** 0.5) / (2 * half)
        return max(0, min(MOST, int(count)))

    def seconds(self, start: int, count: int) -> float:
        """The expected seconds for `count` tokens from `start` on."""
        return self._work(start, count) / self.rate

    def budget_s(self, rows: int) -> float:
        """The time a step has for prompts: what the rows leave of the target, but at least as long as the rows take.

        Rows that are slower than the target miss it anyway, and keeping prompts to it would only make them wait. The
        same holds for what a pass costs at the least. If the rows' own time is not known, it is 0 in a step that
        measures it.
        """
        if not rows:
            return self.target_s * IDLE_FACTOR
        if self.unmeasured >= MEASURED_EVERY or self._is_other(rows):
            return 0.0
        least_s = max(self.rows_s, self.launch / self.rate)
        return max(self.target_s - least_s, least_s)

    def timed(self, short: int, short_s: float, long: int, long_s: float) -> None:
        """Learns what a pass costs, and each token, from passes that read this many tokens and nothing else."""
        more = self._work(0, long) - self._work(0, short)
        self.rate = more / max(long_s - short_s, long_s / 4)  # launching and computing overlap: never for nothing
        self.launch = max(0.0, short_s * self.rate - self._work(0, short))

    def saw(self, seconds: float, pieces: list[tuple[int, int]], rows: int) -> None:
        """Learns from a step that read pieces, given as (start, tokens), while this many rows ran."""
        if not pieces:
            self._saw_rows(min(seconds, NO_STALL * max(self.rows_s, self.target_s)), rows)
            return
        self.unmeasured += 1
        if sum(count for _, count in pieces) < LEAST:
            return
        work = sum(self._work(start, count) for start, count in pieces)
        if not rows or self.launch > self.rows_s * self.rate:
            # launch and tokens are slower on a busy machine alike: a short piece's time is not the price of its tokens
            work, spent = work + self.launch, seconds
        else:
            spent = max(seconds - self.rows_s, seconds / 4)
        # slower is believed at once, faster gradually: a late step is a gap in a user's stream
        seen = work / spent
        self.rate += (0.7 if seen < self.rate else 0.3) * (seen - self.rate)

    def _saw_rows(self, seconds: float, rows: int) -> None:
        if self._is_other(rows):
            self.times_s.clear()
        self.times_s.append(seconds)
        self.rows_s = sorted(self.times_s)[len(self.times_s) // 2]
        self.measured_rows, self.unmeasured = rows, 0

    def _is_other(self, rows: int) -> bool:
        """Whether this many rows take another time than those measured."""
        return not self.measured_rows / 2 < rows < self.measured_rows * 2

    def _work(self, start: int, count: int) -> float:
        return count * (self.per_token + self.per_pair * (start + count / 2))
