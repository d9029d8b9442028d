"""What a step costs on this machine, estimated from steps that were taken here, and which samples share one.

    seconds = rate * (tokens + positions / even)

`tokens` counts those computed, forwards and backwards; `positions` sums how many tokens are before each of them,
which is what attention reads; at position `even` attention costs as much as all the rest. Both numbers are found from
the steps themselves, since they depend on the model and on the machine.
"""

from __future__ import annotations

import asyncio
import math
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from openclaw_rl.core.adapter import StepReport
from openclaw_rl.core.sample import HintPrompt, OtherRequestReply, Sample

Ids = tuple[int, ...]
BACKWARD = 3.0  # times what reading costs: an update reads forwards and backwards
EVENS = tuple(125.0 * 2.0**power for power in range(11))  # 125 to 128,000
LIKELY, AT_MOST = 1000.0, 8000.0  # `even` if the steps do not determine it: a small model's, and a large one's
DOUBT = 0.002  # added to the squared relative error for each squared factor of two that `even` is away from that
NOISE_S = 2.0  # of a step: what shorter ones say counts for less
KEPT = 32  # steps that are used: this many that were taken, and as many that were ended
FADES = 0.9  # what a step counts after each later one
GIVEN_UP = 1.5  # times the seconds after which a step was ended: the time that it is assumed to need
FAR = 10.0  # times the largest step there was: beyond that, what a step takes at least is not known
UNMEASURED = 36_000.0  # tokens of a first step, before any was measured: seconds on a CPU for the smallest models
SIZE = 8  # bytes of a packed id
QUICK = 0.1  # of the limit: steps as short as this delay no one, whatever they contain
ALIKE = 4.0  # samples in one step may cost this many times as much as the cheapest one


@dataclass(frozen=True, slots=True)
class StepWork:
    """What a step computes: what is `read` once, before the first update, and what `each` update computes both ways.

    `read_before` and `each_before` are the positions of these tokens, summed up.
    """

    read: float = 0.0
    read_before: float = 0.0
    each: float = 0.0
    each_before: float = 0.0

    def units(self, updates: float, even: float) -> float:
        """The work of this many updates, expressed in tokens that are read at a prompt's beginning."""
        whole = BACKWARD * updates
        return self.read + whole * self.each + (self.read_before + whole * self.each_before) / even


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """A step that was taken, or that was ended after this many seconds; then its number of updates is not known."""

    work: StepWork
    updates: float
    seconds: float
    is_given_up: bool = False

    def metrics(self, means: float) -> dict[str, float]:
        """As numbers to be stored with the step; `means` as in `Costs`."""
        work = self.work
        found = {"read": work.read, "read_before": work.read_before, "each": work.each, "each_before": work.each_before}
        return {f"work_{name}": value for name, value in found.items()} | {
            "work_updates": self.updates,
            "work_seconds": self.seconds,
            "work_given_up": float(self.is_given_up),
            "work_means": means,
        }


def step_of(metrics: Mapping[str, float], means: float) -> MeasuredStep | None:
    """The step that `MeasuredStep.metrics` reported; None for one of an older program, or with other settings."""
    if metrics.get("work_means") != means or "work_seconds" not in metrics:
        return None
    names = ("work_read", "work_read_before", "work_each", "work_each_before")
    work = StepWork(*(metrics.get(name, 0.0) for name in names))
    return MeasuredStep(work, metrics["work_updates"], metrics["work_seconds"], bool(metrics["work_given_up"]))


@dataclass(slots=True)
class Costs:
    """Estimates, and the measured steps they are made from.

    A step should take at most `limit_s`, and has at most `updates`. `reads_all` says that every update reads prompts
    again. `means` is a number for the settings that decide how fast a step is: steps with others are not comparable.
    """

    limit_s: float = float("inf")
    updates: int = 1
    reads_all: bool = False
    means: float = 0.0
    _taken: list[MeasuredStep] = field(default_factory=list)
    _given_up: list[MeasuredStep] = field(default_factory=list)
    _rates: dict[float, tuple[float, float]] = field(default_factory=dict)

    @property
    def is_known(self) -> bool:
        """Whether there is a step to estimate from."""
        return bool(self._taken or self._given_up)

    def note(self, step: MeasuredStep) -> None:
        """One more step, the newest."""
        held = self._given_up if step.is_given_up else self._taken
        held.append(step)
        del held[:-KEPT]
        self._rates.clear()

    def note_all(self, metrics: Iterable[Mapping[str, float]]) -> None:
        """What was stored with earlier steps, oldest first."""
        for one in metrics:
            if (step := step_of(one, self.means)) is not None:
                self.note(step)

    def taken(self, work: StepWork, report: StepReport) -> MeasuredStep | None:
        """Records the step that a trainer reports and returns it; None if its duration is not reported."""
        if "seconds" not in report.metrics:
            return None
        updates = report.metrics.get("updates", 1.0) + report.metrics.get("updates_undone", 0.0)
        step = MeasuredStep(work, updates, report.metrics["seconds"])
        self.note(step)
        return step

    def given_up(self, work: StepWork, seconds: float) -> MeasuredStep:
        """Records a step that took longer than it may."""
        step = MeasuredStep(work, 0.0, seconds, is_given_up=True)
        self.note(step)
        return step

    def work_of(self, samples: Sequence[Sample]) -> StepWork:
        """What a step over these samples computes."""
        return work_of(samples, reads_all=self.reads_all)

    def seconds(self, work: StepWork) -> float:
        """How long a step is likely to take, rather too long than too short; before any was measured, infinitely."""
        return self._estimate(work, LIKELY) if self.is_known else float("inf")

    def at_least_s(self, work: StepWork) -> float:
        """How long a step will take at least, as far as that can be known; else 0."""
        count = self._count(AT_MOST)
        largest = max((one.work.units(count, AT_MOST) for one in (*self._taken, *self._given_up)), default=0.0)
        is_far = work.units(count, AT_MOST) > FAR * largest
        return 0.0 if is_far else self._estimate(work, AT_MOST)

    def size(self, work: StepWork) -> float:
        """The relative cost of a step: its likely seconds or, before any was measured, tokens."""
        return self.seconds(work) if self.is_known else work.units(self.updates, LIKELY)

    def fits(self, work: StepWork, share: float = 1.0) -> bool:
        """Whether a step of this size is likely to take no more than this share of the limit."""
        if not self.is_known:
            return work.units(self.updates, LIKELY) <= UNMEASURED * share
        return self.seconds(work) <= self.limit_s * share

    def is_beyond(self, work: StepWork) -> bool:
        """Whether a step of this size is sure to take longer than the limit, by what is known."""
        return self.at_least_s(work) > self.limit_s

    def _estimate(self, work: StepWork, usual: float) -> float:
        if usual not in self._rates:
            self._rates[usual] = self._fitted(usual)
        rate, even = self._rates[usual]
        return rate * work.units(self._count(usual), even)

    def _count(self, usual: float) -> float:
        """The number of updates to assume: the most that steps made, or the fewest for a lower bound."""
        made = [one.updates for one in self._taken] or [float(self.updates)]
        return max(made) if usual == LIKELY else min(made)

    def _fitted(self, usual: float) -> tuple[float, float]:
        """The rate and `even` that explain the steps best; steps that were ended count if they come out too short."""
        times, count = GIVEN_UP if usual == LIKELY else 1.0, self._count(usual)
        bounds = [MeasuredStep(one.work, count, times * one.seconds) for one in self._given_up]
        rate, even = _fit(self._taken, usual) if self._taken else (0.0, usual)
        short = [one for one in bounds if rate * one.work.units(one.updates, even) < one.seconds]
        return _fit([*self._taken, *short], usual) if short else (rate, even)


def _fit(steps: Sequence[MeasuredStep], usual: float) -> tuple[float, float]:
    """The rate and `even` with the least relative error; `usual` if the steps do not determine it."""
    best, found = float("inf"), (0.0, usual)
    weights = [FADES**age * (one.seconds / (one.seconds + NOISE_S)) ** 2 for age, one in enumerate(reversed(steps))]
    weights.reverse()
    total = sum(weights) or 1.0
    for even in sorted({*EVENS, usual}):
        # relative errors: seconds / units is the rate as each step says it
        shares = [one.work.units(one.updates, even) / max(one.seconds, 1e-9) for one in steps]
        square = sum(weight * share * share for weight, share in zip(weights, shares, strict=True))
        rate = sum(weight * share for weight, share in zip(weights, shares, strict=True)) / square if square else 0.0
        wrong = sum(weight * (1.0 - rate * share) ** 2 for weight, share in zip(weights, shares, strict=True)) / total
        wrong += DOUBT * math.log2(even / usual) ** 2
        if wrong < best:
            best, found = wrong, (rate, even)
    return found


def work_of(samples: Sequence[Sample], *, reads_all: bool) -> StepWork:
    """What a step over these samples computes; what they share counts once.

    The base model reads everything with the hints and without them, the policy reads the prompts, and each update
    reads the replies, or with `reads_all` their prompts too. Demonstrations that only check the step are read once.
    """
    checks = [_packed(other.prompt + other.reply.tokens) for sample in samples for other in _checks(sample)]
    plain: list[bytes] = []
    hinted: list[bytes] = []
    prompts: list[bytes] = []
    said = before = 0
    for prompt, hints, replies in (part for sample in samples for part in _parts(sample)):
        prompts.append(_packed(prompt))
        for reply in replies:
            packed = _packed(reply)
            plain.append(prompts[-1] + packed)
            hinted += [_packed(hint.tokens) + packed for hint in hints]
            said += len(reply)
            before += _sum_of(len(prompt), len(prompt) + len(reply))
    base, whole = distinct([*plain, *hinted]), distinct(plain)
    policy = distinct(checks if reads_all else [*prompts, *checks])
    each, each_before = whole if reads_all else (said, before)
    return StepWork(base[0] + policy[0], base[1] + policy[1], each, each_before)


def distinct(sequences: Iterable[bytes]) -> tuple[int, int]:
    """How many tokens these packed sequences hold, what several begin with counted once; and their positions summed."""
    tokens = before = 0
    last = b""
    for one in sorted(set(sequences)):
        shared = _shared(last, one) // SIZE
        size = len(one) // SIZE
        tokens += size - shared
        before += _sum_of(shared, size)
        last = one
    return tokens, before


def _packed(ids: Sequence[int]) -> bytes:
    return array("q", ids).tobytes()


def _parts(sample: Sample) -> list[tuple[Ids, tuple[HintPrompt, ...], list[Ids]]]:
    """The prompts that a step over the sample reads, each with its hints and the replies to it."""
    beside = [reply.tokens for reply in (sample.own, *sample.shown) if reply is not None]
    elsewhere = [
        (other.prompt, (other.hint,), [other.reply.tokens]) for other in sample.elsewhere if not other.is_check
    ]
    return [(sample.prompt, sample.hints, [sample.response, *beside]), *elsewhere]


def _checks(sample: Sample) -> list[OtherRequestReply]:
    return [other for other in sample.elsewhere if other.is_check]


def _sum_of(first: int, last: int) -> int:
    """first + ... + (last - 1)."""
    return (last * (last - 1) - first * (first - 1)) // 2


def _shared(one: bytes, other: bytes) -> int:
    """How many bytes two sequences begin with alike."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(slots=True)
class BatchPlanner:
    """Which samples share a step, so that short ones never wait for costly ones, and costly ones do not wait for ever.

    A step contains samples of about the same cost, as many as its time allows. Short ones come first while they are
    ready. The time of their steps is added up; when it equals what a costly step needs, that step is next.

    Chooses for one scope. What a sample costs alone is remembered while it waits.
    """

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
