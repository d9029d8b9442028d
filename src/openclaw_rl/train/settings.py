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
    ADVANCED: ClassVar[frozenset[str]] = frozenset(
        {
            "rehearse_again", "retry_max_s", "retry_s", "step_share",
        }
    )  # fmt: skip

    scopes: Scopes = Scopes.SHARED
    """Who has an adapter: shared, user, agent, shared+user or shared+agent. With a +, these adapters are added to the
    shared one. Change it when each user or agent should have an adapter."""
    batch_size: int = 16
    """A step starts at once when this many samples with a signal are ready. Change it when many samples arrive at once
    and steps should be larger or smaller."""
    min_batch: int = 1
    """A step starts with this many samples once the oldest has waited `max_wait_s`. At most `batch_size`. The first
    step takes as many of similar cost; later ones take fewer if time or memory is short. Change it when single
    corrections should not make a step."""
    rehearsal_samples: int = 4
    """How many rehearsal samples (replies without a correction) are added to a step, so that earlier learning is kept.
    Change it when earlier learning is lost (more), or steps take too long (fewer)."""
    rehearse_again: int = 8
    """If a step has room for more rehearsal samples, it repeats some that earlier steps used, out of the newest N of
    each kind. 0: each is used once. Change it with train.rehearsal_samples: when wishes are lost that nobody mentioned
    for long."""
    max_wait_s: float = 0.0
    """How many seconds a sample waits for others before a smaller step starts. Change it with train.min_batch above 1:
    how long to wait for more."""
    max_lag: int = 16
    """Samples that were sampled more than this many served versions ago are dropped as stale. Change it when samples
    are dropped as stale (raise), or old replies should not teach (lower)."""
    max_sample_tokens: int = 32768
    """Turns longer than this, prompt and answer together, are not trained on. OpenClaw's own prompt takes 12,000 tokens
    and more. Change it when turns are dropped as too_long, or steps need too much memory."""
    step_share: float = 0.33
    """Which share of trainer.timeout_s a step may take, estimated from earlier steps. A step gets as many samples as
    fit. A sample that alone would take longer is set aside (`too_dear`) and considered again at each start."""
    user_share: float = 0.5
    """Which share of `batch_size` may come from one user in a step of a shared version, if several users teach. Change
    it when one user teaches much more than the others."""
    train_window: str = ""
    """Local hours during which steps may start, such as 22-6 or 22:30-6:15; empty for any time. Change it when
    steps should be taken at night only."""
    idle_s: float = 0.0
    """Steps start only after the server has been idle for this many seconds. 0: at any time. Change it when steps slow
    answers down on a small machine."""
    retry_s: float = 5.0
    """Seconds to wait after a failed step. Doubles with each further failure."""
    retry_max_s: float = 300.0
    """The longest wait after failed steps, in seconds."""

    @property
    def needed(self) -> int:
        """How many samples with a signal make a step due at once."""
        return self.batch_size if self.max_wait_s else min(self.min_batch, self.batch_size)

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size is {self.batch_size}: a step needs at least one sample")
        if self.min_batch < 1:
            raise ValueError(f"min_batch is {self.min_batch}: a step needs at least one sample")
        if min(self.rehearsal_samples, self.rehearse_again) < 0:
            raise ValueError("rehearsal_samples and rehearse_again cannot be negative")
        if self.max_lag < 0 or self.max_wait_s < 0 or self.idle_s < 0:
            raise ValueError("max_lag, max_wait_s and idle_s cannot be negative")
        if not 0.0 < self.step_share <= 1.0:
            raise ValueError(f"step_share is {self.step_share}: it must be above 0 and at most 1")
        if not 0.0 < self.user_share <= 1.0:
            raise ValueError(f"user_share is {self.user_share}: it must be above 0 and at most 1")
        if self.retry_s <= 0 or self.retry_max_s < self.retry_s:
            raise ValueError("retry_s must be above 0, and retry_max_s at least that")
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
