"""What is tried after a step that failed: smaller batches, then samples one at a time, with pauses between.

If a trainer fails on everything, no sample is to blame: a sample is given up only if it failed alone twice and
another was trained in between.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from openclaw_rl.core.ledger import DropReason
from openclaw_rl.core.sample import Sample

ALONE_TWICE = 2
ALONE_OFTEN = 5  # times a sample may lack memory alone if no other is trained in between


@dataclass(slots=True)
class Retries:
    """The memory of failed steps. `most` is the batch to try next if it is smaller than usual."""

    first_pause_s: float
    longest_pause_s: float
    most: int | None = None
    not_before_s: float = 0.0
    _in_a_row: int = 0
    _steps: int = 0
    _alone: dict[str, tuple[int, int]] = field(default_factory=dict)  # turn -> failures, steps taken before
    apart: dict[str, int] = field(default_factory=dict)  # turns tried alone -> steps before

    @property
    def put_off(self) -> dict[str, int]:
        """Turns that are put off, with the number of times each failed alone."""
        return {turn: times for turn, (times, _) in self._alone.items() if times >= ALONE_TWICE}

    def failed(self, samples: Sequence[Sample], now_s: float) -> tuple[tuple[str, DropReason], ...]:
        """Records that a step over these failed; returns what is to be given up."""
        self.paused(now_s)
        if len(samples) > 1:
            self.most = len(samples) // 2
            return ()
        times, before = self._fail_alone(samples[0].turn)
        if times < ALONE_TWICE or self._steps == before:
            return ()
        return self._given_up(samples[0].turn, DropReason.TRAINER_FAILED)

    def too_dear(
        self, samples: Sequence[Sample], dearest: str, now_s: float, *, is_proven: bool
    ) -> tuple[tuple[str, DropReason], ...]:
        """Records that a step over these took too long or too much memory; returns the samples to be set aside.

        The costliest one (`dearest`) is tried alone from then on, and the others continue in smaller steps without it.
        If it also fails alone it is set aside, but at once only if this proves it too costly: another program may have
        used the memory.
        """
        if len(samples) > 1:
            self.most = len(samples) // 2
            self.apart[dearest] = self._steps
            return ()
        if not is_proven:
            self.paused(now_s)
            times, before = self._fail_alone(dearest)
            if times < ALONE_TWICE or (self._steps == self.apart.get(dearest, before) and times < ALONE_OFTEN):
                return ()
        self._alone.pop(dearest, None)
        self.apart.pop(dearest, None)
        return ((dearest, DropReason.TOO_DEAR),)

    def not_finite(self, samples: Sequence[Sample], now_s: float) -> tuple[tuple[str, DropReason], ...]:
        """Records a loss or gradient that was not finite; its sample is given up after one retry alone."""
        self.paused(now_s)
        if len(samples) > 1:
            self.most = len(samples) // 2
            return ()
        times, _ = self._fail_alone(samples[0].turn)
        return () if times < ALONE_TWICE else self._given_up(samples[0].turn, DropReason.NOT_FINITE)

    def paused(self, now_s: float) -> None:
        """Records a failure that no sample caused."""
        self.not_before_s = now_s + min(self.first_pause_s * 2 ** min(self._in_a_row, 30), self.longest_pause_s)
        self._in_a_row += 1

    def succeeded(self, samples: Sequence[Sample], batch_size: int) -> None:
        """Records a step: the next may be twice as large, up to the usual size."""
        self._in_a_row, self.not_before_s = 0, 0.0
        self._steps += 1
        if self.most is not None:
            self.most = None if self.most * 2 >= batch_size else self.most * 2
        for sample in samples:
            self._alone.pop(sample.turn, None)
            self.apart.pop(sample.turn, None)

    def forget_but(self, turns: Collection[str]) -> None:
        """Keeps only the records of these."""
        self._alone = {turn: held for turn, held in self._alone.items() if turn in turns}
        self.apart = {turn: steps for turn, steps in self.apart.items() if turn in turns}

    def _fail_alone(self, turn: str) -> tuple[int, int]:
        times, before = self._alone.get(turn, (0, self._steps))
        self._alone[turn] = (times + 1, before)
        return self._alone[turn]

    def _given_up(self, turn: str, reason: DropReason) -> tuple[tuple[str, DropReason], ...]:
        del self._alone[turn]
        return ((turn, reason),)
