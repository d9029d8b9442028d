"""Which samples share a step, so that short ones never wait for costly ones, and costly ones do not wait for ever.

A step contains samples of about the same cost, as many as its time allows. Short ones come first while they are ready.
The time of their steps is added up; when it equals what a costly step needs, that step is next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from openclaw_rl.core.sample import Sample
from openclaw_rl.train.costs import Costs, StepWork

QUICK = 0.1  # of the limit: steps as short as this delay no one, whatever they contain
ALIKE = 4.0  # samples in one step may cost this many times as much as the cheapest one


@dataclass(slots=True)
class BatchPlanner:
    """Chooses for one scope. What a sample costs alone is remembered while it waits."""

    costs: Costs
    _alone: dict[str, StepWork] = field(default_factory=dict)
    _owed_s: float = 0.0
    _is_owing: bool = False  # whether costly ones wait for the step that was chosen last

    async def look_at(self, ready: Sequence[Sample]) -> None:
        """Computes what each of these costs alone, and drops all others. Counting long prompts takes a while."""
        new = [sample for sample in ready if sample.turn not in self._alone]
        found = await asyncio.to_thread(lambda: {sample.turn: self.costs.work_of([sample]) for sample in new})
        known = self._alone | found
        self._alone = {sample.turn: known[sample.turn] for sample in ready}

    def beyond(self, samples: Sequence[Sample]) -> dict[str, float]:
        """The turns that are sure to take longer than a step may, each alone, and the seconds each is likely to."""
        works = {sample.turn: self._work(sample) for sample in samples}
        return {turn: self.costs.seconds(work) for turn, work in works.items() if self.costs.is_beyond(work)}

    def dearest(self, samples: Sequence[Sample]) -> str:
        """The turn that costs most alone; the first of equals."""
        return max(samples, key=self._size).turn

    async def chosen(
        self, teaching: Sequence[Sample], *, size: int, apart: Collection[str], least: int = 1
    ) -> list[Sample]:
        """At most this many of these for the next step, oldest first. Those that are `apart` are trained alone.

        Before any step was measured, `least` of them go together even if it is not known whether there is enough time.
        """
        cheapest = min((self._size(sample) for sample in teaching if sample.turn not in apart), default=0.0)
        short = [sample for sample in teaching if sample.turn not in apart and self._is_short(sample, cheapest)]
        dear = [sample for sample in teaching if sample not in short]
        self._is_owing = bool(short and dear)
        if not short:
            return sorted(dear, key=self._size)[:1]
        if dear and self._owed_s and self._owed_s >= self.costs.seconds(self._work(dear[0])):
            self._is_owing = False
            return dear[:1]
        sure = 1 if self.costs.is_known else min(least, size)
        return await asyncio.to_thread(self._together, short, size, sure)

    async def with_room_for(self, rehearsals: Sequence[Sample], chosen: Sequence[Sample]) -> list[Sample]:
        """The rehearsal samples for which a step over the chosen samples still has time, added one after the other."""
        return await asyncio.to_thread(self._beside, rehearsals, chosen)

    def least(self, teaching: Sequence[Sample], apart: Collection[str]) -> StepWork | None:
        """What the cheapest of these costs, of those that need not go alone if there are any; None without samples."""
        together = [sample for sample in teaching if sample.turn not in apart] or teaching
        return min((self._work(sample) for sample in together), key=self.costs.size, default=None)

    def succeeded(self, seconds: float) -> None:
        """Records how long the step that was chosen last took."""
        self._owed_s = self._owed_s + seconds if self._is_owing else 0.0

    def _size(self, sample: Sample) -> float:
        return self.costs.size(self._work(sample))

    def _work(self, sample: Sample) -> StepWork:
        if sample.turn not in self._alone:
            self._alone[sample.turn] = self.costs.work_of([sample])
        return self._alone[sample.turn]

    def _is_short(self, sample: Sample, least: float) -> bool:
        return self._size(sample) <= ALIKE * least or self.costs.fits(self._work(sample), QUICK)

    def _together(self, short: Sequence[Sample], size: int, sure: int) -> list[Sample]:
        """The first ones always; of the others those that there is time for, what all of them share counted once."""
        found = list(short[:sure])
        for sample in short[sure:]:
            if len(found) < size and self.costs.fits(self.costs.work_of([*found, sample])):
                found.append(sample)
        return found

    def _beside(self, rehearsals: Sequence[Sample], chosen: Sequence[Sample]) -> list[Sample]:
        """Those that neither make the step too long nor a short one several times as long."""
        most = ALIKE * self.costs.size(self.costs.work_of(chosen))
        found: list[Sample] = []
        for rehearsal in rehearsals:
            work = self.costs.work_of([*chosen, *found, rehearsal])
            is_short = self.costs.size(work) <= most or self.costs.fits(work, QUICK)
            if is_short and self.costs.fits(work):
                found.append(rehearsal)
        return found


@dataclass(slots=True)
class ScopeTurns:
    """Whose step is next, of scopes that each have one due: by the same rule as samples within a scope."""

    costs: Costs
    _owed_s: float = 0.0
    _is_owing: bool = False

    def chosen(self, due: Mapping[str, StepWork]) -> str:
        """One of these, the one that waited longest named first; `due` is what the cheapest sample of each costs."""
        least = min(map(self.costs.size, due.values()))
        dear = [
            name
            for name, work in due.items()
            if self.costs.size(work) > ALIKE * least and not self.costs.fits(work, QUICK)
        ]
        self._is_owing = bool(dear)
        if dear and self._owed_s and self._owed_s >= self.costs.seconds(due[dear[0]]):
            self._is_owing = False
            return dear[0]
        return next(name for name in due if name not in dear)

    def took(self, seconds: float) -> None:
        """Records how long the step of the scope that was chosen last took."""
        self._owed_s = self._owed_s + seconds if self._is_owing else 0.0
