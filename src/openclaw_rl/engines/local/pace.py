"""How many prompt tokens a step may read, so that it ends in time for the rows that stream beside it."""

from __future__ import annotations

from dataclasses import dataclass

IDLE_FACTOR = 8  # a step nobody streams beside may take so many times the target
LEAST, MOST = 8, 1024  # tokens; more than 1,024 gain nothing and cost memory


@dataclass(slots=True)
class Pace:
    """Learns what work costs here. Work is counted in multiply-adds, those of attention weighing more."""

    per_token: float  # weights read by a token
    per_pair: float  # numbers of keys and values a token meets at each token before it
    target_s: float
    rate: float = 2e10  # work a second; a careful first guess
    rows_s: float = 0.002  # what the rows alone take

    def tokens(self, start: int, *, budget_s: float) -> int:
        """How many tokens from position `start` on fit into the time: work = n a + b (n start + n n / 2)."""
        work = budget_s * self.rate
        linear = self.per_token + self.per_pair * start
        half = self.per_pair / 2
        count = (-linear + (linear * linear + 4 * half * work) ** 0.5) / (2 * half)
        return max(0, min(MOST, int(count)))

    def seconds(self, start: int, count: int) -> float:
        """What so many tokens from `start` on are thought to take."""
        return count * (self.per_token + self.per_pair * (start + count / 2)) / self.rate

    def budget_s(self, rows: int) -> float:
        """The time a step has for prompts."""
        if not rows:
            return self.target_s * IDLE_FACTOR
        return max(self.target_s - self.rows_s, self.target_s / 4)

    def saw(self, seconds: float, pieces: list[tuple[int, int]], rows: int) -> None:
        """Learns from a step that read pieces, given as (start, tokens), beside so many rows."""
        if not pieces:
            self.rows_s += 0.1 * (min(seconds, self.target_s) - self.rows_s)
            return
        if sum(count for _, count in pieces) < LEAST:
            return
        work = sum(count * (self.per_token + self.per_pair * (start + count / 2)) for start, count in pieces)
        spent = max(seconds - (self.rows_s if rows else 0.0), seconds / 4)
        # slower is believed at once, faster by and by: a late step is a gap in somebody's stream
        seen = work / spent
        self.rate += (0.7 if seen < self.rate else 0.3) * (seen - self.rate)
