"""How far a step has come, told while it is under way."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from openclaw_rl.core.adapter import StepProgress

Report = Callable[[StepProgress], None]


def silent(progress: StepProgress) -> None:
    """Nobody listens."""


class ProgressReporter:
    """Keeps the progress of one step and hands it to `report` after each pass and each update."""

    def __init__(self, report: Report, *, most: int = 0, enough: float = 0.0) -> None:
        self._report = report
        self._began_s = time.perf_counter()
        self._progress = StepProgress(most=most, enough=enough)

    def read(self, tokens: int) -> None:
        """So many more tokens were read before the first update."""
        now = self._progress
        spent_s = time.perf_counter() - self._began_s
        self._tell(replace(now, tokens=now.tokens + tokens, reading_s=spent_s))

    def updated(self, updates: int, distance: float) -> None:
        """So many updates were made and kept, and this share of the first distance is left."""
        spent_s = time.perf_counter() - self._began_s - self._progress.reading_s
        self._tell(replace(self._progress, updates=updates, distance=distance, updating_s=spent_s))

    def _tell(self, progress: StepProgress) -> None:
        self._progress = progress
        self._report(progress)
