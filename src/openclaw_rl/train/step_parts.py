"""What the steps of all scopes share, the step in progress among it, and how far that has come in words."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from openclaw_rl.core.adapter import StepProgress
from openclaw_rl.core.message import Json
from openclaw_rl.core.protocols import Trainer
from openclaw_rl.core.sample import Sample, Wants
from openclaw_rl.store.db import Store
from openclaw_rl.train.costs import Costs
from openclaw_rl.train.settings import TrainSettings


@dataclass(slots=True)
class StepInProgress:
    """What is known of a step: how many `samples` teach, the `tokens` that are read first, and its likely `seconds`.

    Without samples no step is under way. The seconds are infinite before any step was measured. `turns` are those of
    the step that began last, also while it is committed.
    """

    samples: int = 0
    tokens: float = 0.0
    seconds: float = math.inf
    turns: frozenset[str] = frozenset()

    def begin(self, samples: int, tokens: float, seconds: float, turns: frozenset[str]) -> None:
        """A step begins."""
        self.samples, self.tokens, self.seconds, self.turns = samples, tokens, seconds, turns

    def end(self) -> None:
        """It has ended."""
        self.samples, self.tokens, self.seconds = 0, 0.0, math.inf


async def holds_alone(rehearsal: Sample, since: Sequence[str]) -> bool:
    """Without a model to ask, any later wish may oppose it."""
    return not since


@dataclass(frozen=True, slots=True)
class StepParts:
    """What the steps of all scopes share; see `TrainStage`.

    `holds` says whether a rehearsal sample may be read again, given its user's hints since its reply.
    """

    store: Store
    trainer: Trainer
    settings: TrainSettings
    wants: Wants
    home: Path
    recipe: Mapping[str, Json]
    idle_s: Callable[[], float]
    clock: Callable[[], float]
    now: Callable[[], float]
    holds: Callable[[Sample, Sequence[str]], Awaitable[bool]] = holds_alone
    costs: Costs = field(default_factory=Costs)
    under_way: StepInProgress = field(default_factory=StepInProgress)


def left_s(progress: StepProgress | None, under_way: StepInProgress) -> float | None:
    """The seconds that are likely left; None if unknown.

    Later, updates predict best: the distance falls by about the same factor at each, until it is `enough` or
    there are no more updates. What was read once more than there are updates is in their time.
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


def progress_in_words(progress: StepProgress | None, under_way: StepInProgress) -> str:
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
