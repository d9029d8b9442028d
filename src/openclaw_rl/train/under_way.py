"""The step under way in words: what it does, its progress, and how long it will probably still take."""

from __future__ import annotations

import math
from dataclasses import dataclass

from openclaw_rl.core.adapter import StepProgress


@dataclass(slots=True)
class StepInProgress:
    """What is known of a step: how many `samples` teach, the `tokens` that are read first, and its likely `seconds`.

    Without samples no step is under way. The seconds are infinite before any step was measured.
    """

    samples: int = 0
    tokens: float = 0.0
    seconds: float = math.inf

    def begin(self, samples: int, tokens: float, seconds: float) -> None:
        """A step begins."""
        self.samples, self.tokens, self.seconds = samples, tokens, seconds

    def end(self) -> None:
        """It has ended."""
        self.samples, self.tokens, self.seconds = 0, 0.0, math.inf


def left_s(progress: StepProgress | None, under_way: StepInProgress) -> float | None:
    """The seconds that are likely left; None if this cannot be determined.

    Once there are updates they are the best evidence: the distance falls by about the same factor at each, until it is
    `enough` or there are no more updates. Tokens that were read once more than there are updates are in their time.
    """
    if progress is None or not progress.updates or progress.distance is None:
        spent_s = 0.0 if progress is None else progress.spent_s
        return max(0.0, under_way.seconds - spent_s) if math.isfinite(under_way.seconds) else None
    count = float(progress.most)
    if 0.0 < progress.enough < 1.0 and 0.0 < progress.distance < 1.0:
        count = min(count, progress.updates * math.log(progress.enough) / math.log(progress.distance))
    each_s = progress.updating_s / (progress.updates + 1)
    since_s = max(0.0, progress.spent_s - progress.reading_s - progress.updating_s)
    return max(0.0, each_s * max(1.0, count - progress.updates) - since_s)


def told(progress: StepProgress | None, under_way: StepInProgress) -> str:
    """Such as `update 3 of at most 8, 41 % of the distance left, about 20 s to go`; empty if nothing is known."""
    parts: list[str] = []
    if progress is not None and progress.updates:
        parts.append(f"update {progress.updates + 1} of at most {progress.most}")
        if progress.distance is not None:
            parts.append(f"{progress.distance:.0%} of the distance to the teacher left".replace("%", " %"))
    elif progress is not None and progress.tokens and under_way.tokens:
        read = min(float(progress.tokens), under_way.tokens)
        parts.append(f"{read:,.0f} of {under_way.tokens:,.0f} tokens read")
    left = left_s(progress, under_way)
    if left is not None:
        parts.append(f"about {left:.0f} s to go")
    return ", ".join(parts)
