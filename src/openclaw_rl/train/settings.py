"""The settings of the training stage: when a step is taken, and over what."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from openclaw_rl.core.scope import Scopes

_WINDOW = re.compile(r"([01]?[0-9]|2[0-3])(?::([0-5][0-9]))?-([01]?[0-9]|2[0-3])(?::([0-5][0-9]))?")


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """When a step is taken, and over what."""

    # Nobody outside can judge these: they are shown on request.
    ADVANCED: ClassVar[frozenset[str]] = frozenset({"retry_max_s", "retry_s", "step_share"})

    scopes: Scopes = Scopes.SHARED
    """Whose adapters there are: shared, user, agent, shared+user or shared+agent; own ones stand on the shared one.
    Change it when each user or agent should have an adapter."""
    batch_size: int = 16
    """How many samples with a signal make a step due at once. Change it when many samples arrive at once and steps
    should be larger or smaller."""
    min_batch: int = 1
    """How many are enough once the oldest has waited `max_wait_s`; never more than `batch_size`. Change it when single
    corrections should not make a step."""
    riders: int = 4
    """How many replies that nobody corrected ride along in a step, so that what was learned before holds. Change it
    when earlier learning is lost (more), or steps take too long (fewer)."""
    rides_again: int = 8
    """Of how many such replies of each kind, the newest, some are read again where a step has room for more riders; 0:
    each rides once. Change it with train.rehearsal_samples: when wishes fade that nobody mentioned for long."""
    max_wait_s: float = 0.0
    """How long a sample waits for others before a smaller step is taken. Change it with train.min_batch above 1: how
    long to wait for more."""
    max_lag: int = 16
    """Samples from more than this many served versions ago are dropped as stale. Change it when samples are dropped as
    stale (raise), or old replies should not teach (lower)."""
    max_sample_tokens: int = 32768
    """Turns longer than this, prompt and answer together, are not trained on. OpenClaw's own words take 12,000 and
    more. Change it when turns are dropped as too_long, or steps need too much memory."""
    step_share: float = 0.33
    """How much of trainer.timeout_s a step may take, by what earlier ones took. It holds as many samples as fit; a
    sample that would take longer alone is set aside (too_dear), and looked at again at each start."""
    user_share: float = 0.5
    """How much of `batch_size` may come from one user in a step of a shared version, where several users teach. Change
    it when one user teaches much more than the others."""
    train_window: str = ""
    """Hours of the local day in which steps are taken, such as 22-6 or 22:30-6:15; empty for any time. Change it when
    steps should be taken at night only."""
    idle_s: float = 0.0
    """Steps are taken only when nobody was served for so long; 0 for no such wait. Change it when steps slow answers
    down on a small machine."""
    retry_s: float = 5.0
    """The first pause after a step that failed; it doubles with each further failure."""
    retry_max_s: float = 300.0
    """The longest such pause."""

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size is {self.batch_size}: a step needs at least one sample")
        if self.min_batch < 1:
            raise ValueError(f"min_batch is {self.min_batch}: a step needs at least one sample")
        if min(self.riders, self.rides_again) < 0:
            raise ValueError("riders and rides_again cannot be negative")
        if self.max_lag < 0 or self.max_wait_s < 0 or self.idle_s < 0:
            raise ValueError("max_lag, max_wait_s and idle_s cannot be negative")
        if not 0.0 < self.step_share <= 1.0:
            raise ValueError(f"step_share is {self.step_share}: it lies above 0 and is at most 1")
        if not 0.0 < self.user_share <= 1.0:
            raise ValueError(f"user_share is {self.user_share}: it lies above 0 and is at most 1")
        if self.retry_s <= 0 or self.retry_max_s < self.retry_s:
            raise ValueError("retry_s lies above 0, and retry_max_s is at least that")
        if self.train_window:
            window_minutes(self.train_window)


def window_minutes(window: str) -> tuple[int, int]:
    """When a window opens and closes, in minutes of the day. Raises ValueError."""
    found = _WINDOW.fullmatch(window.strip())
    if found is None:
        raise ValueError(f"train_window is {window!r}: write it as 22-6 or 22:30-6:15")
    start = int(found[1]) * 60 + int(found[2] or 0)
    stop = int(found[3]) * 60 + int(found[4] or 0)
    return start, stop
