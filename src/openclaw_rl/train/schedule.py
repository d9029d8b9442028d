"""When a step is due, and over which samples, also after one that failed.

A correction says nothing about what else its user likes, or what other users like. So steps over corrections alone undo
earlier ones. Rehearsal samples, replies without a correction, are added to keep what was learned. Such a sample is
learned given the kept hints that it follows. If it follows none, it is anchored to the base model. The first step that
uses it consumes it. Later steps read some of them again: one rehearsal keeps a wish for a step or two, and a wish that
was not mentioned since would be unlearned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from openclaw_rl.core.hint import KeptHint
from openclaw_rl.core.ledger import DropReason
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.train.settings import TrainSettings, window_minutes
from openclaw_rl.wording.likeness import are_of_other_tasks, asks_alike, is_about

ALONE_TWICE = 2
ALONE_OFTEN = 5  # times a sample may lack memory alone if no other is trained in between
TRIED = 4  # to read again: this many times the samples that there are places for


def is_open(window: str, minute: int) -> bool:
    """Whether a minute of the local day is in the window; one that ends before it starts spans midnight."""
    if not window:
        return True
    start, stop = window_minutes(window)
    if start <= stop:
        return start <= minute < stop
    return minute >= start or minute < stop


@dataclass(frozen=True, slots=True)
class Moment:
    """What the decision to take a step depends on, besides the samples."""

    minute: int  # of the local day
    idle_s: float  # since the last request


def why_waiting(
    teaching: int, waited_s: float, moment: Moment, settings: TrainSettings, *, most: int | None = None
) -> str:
    """Why no step is due, in plain words; empty if one is.

    `teaching` counts the ready samples with a signal, `waited_s` is how long the oldest of them has been ready, and
    `most` is a smaller batch to try after a failure.
    """
    enough = settings.batch_size if most is None else min(most, settings.batch_size)
    least = min(settings.min_batch, enough)
    if teaching == 0:
        return "there is nothing new to learn from"
    if teaching < least:
        return f"{teaching} of the at least {least} samples a step needs are ready"
    if teaching < enough and waited_s < settings.max_wait_s:
        return (
            f"{teaching} of {enough} samples are ready; without more, a step is taken "
            f"in {settings.max_wait_s - waited_s:.0f} s"
        )
    if not is_open(settings.train_window, moment.minute):
        return f"{teaching} samples are ready; steps are taken between {settings.train_window} only"
    if moment.idle_s < settings.idle_s:
        return f"{teaching} samples are ready; steps wait until the server was idle for {settings.idle_s:g} s"
    return ""


def batch(
    ready: Sequence[Sample],
    teaches: Callable[[Sample], bool],
    *,
    size: int,
    room: RehearsalBudget,
    put_off: Mapping[str, int] = MappingProxyType({}),
) -> tuple[Sample, ...]:
    """The samples of the next step: up to `size` that teach, oldest first, and rehearsal samples if there is room.

    A rehearsal sample is a promoted one, a reply without a correction; it does not cause a step. Samples that are
    `put_off`, with the number of times they failed alone, wait while there are others. Then they are tried one at a
    time.
    """
    teaching = [sample for sample in ready if teaches(sample) and sample.turn not in put_off][:size]
    if not teaching:
        rest = [sample for sample in ready if teaches(sample)]
        return (min(rest, key=lambda sample: put_off[sample.turn]),) if rest else ()
    along = chosen([sample for sample in ready if not teaches(sample)], room)
    names = {sample.turn for sample in (*teaching, *along)}
    return tuple(sample for sample in ready if sample.turn in names)


def outdated(
    ready: Sequence[Sample],
    teaches: Callable[[Sample], bool],
    served: Sequence[PolicyVersion],
    *,
    max_lag: int,
    room: RehearsalBudget,
    place: Callable[[PolicyVersion], PolicyVersion] = lambda version: version,
) -> tuple[tuple[str, DropReason], ...]:
    """What has waited too long, with the reason.

    `served` are the versions that have been live, up to the one being served: the lag of a sample is how many of them
    came after the one it was sampled from, or after its `place` among them if that is of another scope. Rehearsal
    samples do not depend on who sampled them, so they may wait. Those without `room` are dropped as without signal, the
    oldest of the largest kinds first.
    """
    found: list[tuple[str, DropReason]] = []
    newest = [sample for sample in reversed(ready) if not teaches(sample)]
    kept = {sample.turn for sample in chosen(newest, room)}
    for sample in ready:
        if not teaches(sample):
            if sample.turn not in kept:
                found.append((sample.turn, DropReason.NO_SIGNAL))
        elif sum(1 for version in served if version > place(sample.version)) > max_lag:
            found.append((sample.turn, DropReason.STALE))
    return tuple(found)


def shared_fairly(samples: Sequence[Sample], most: int, teaches: Callable[[Sample], bool]) -> list[Sample]:
    """The samples without the teaching ones beyond `most` of one user, in their order; those wait for another step.

    Rehearsal samples do not count: they teach nothing by themselves, and would take their own user's places.
    """
    taken: Counter[str] = Counter()
    kept: list[Sample] = []
    for sample in samples:
        taken[sample.user] += teaches(sample)
        if taken[sample.user] <= most:
            kept.append(sample)
    return kept


def apart(
    samples: Sequence[Sample], returned: Mapping[str, int], teaches: Callable[[Sample], bool]
) -> Sequence[Sample]:
    """The samples without teaching ones that are not to be learned together with the oldest of them.

    What refused versions gave back is learned by itself, one user's at a time: what made a version bad must not have
    others' corrections refused with it again.
    """
    oldest = next((sample for sample in samples if teaches(sample)), None)
    if oldest is None:
        return samples
    is_returned = oldest.turn in returned
    return [
        sample
        for sample in samples
        if not teaches(sample)
        or ((sample.turn in returned) is is_returned and (not is_returned or sample.user == oldest.user))
    ]


def most_of_one(settings: TrainSettings) -> int:
    """How many samples of one user a step of a shared version may contain if several users teach."""
    return max(1, int(settings.user_share * settings.batch_size))


@dataclass(frozen=True, slots=True)
class RehearsalBudget:
    """How many rehearsal samples there is room for, and how many tokens they may have together, prompts included."""

    samples: int
    tokens: int

    def without(self, rehearsals: Sequence[Sample]) -> RehearsalBudget:
        """What these leave of it."""
        return RehearsalBudget(
            self.samples - len(rehearsals), self.tokens - sum(_tokens(rehearsal) for rehearsal in rehearsals)
        )


def chosen(rehearsals: Sequence[Sample], room: RehearsalBudget) -> list[Sample]:
    """Those that fit, chosen from each kind in turn. A kind is a user with the hints that are rehearsed.

    The first ones of each kind are chosen. Kinds with more waiting samples come first.
    """
    waiting = sorted(_by_kind(rehearsals).values(), key=len, reverse=True)
    places = range(max(map(len, waiting), default=0))
    return fitting([kind[place] for place in places for kind in waiting if place < len(kind)], room)


def fitting(rehearsals: Iterable[Sample], room: RehearsalBudget) -> list[Sample]:
    """Those that there is room for, in order."""
    found: list[Sample] = []
    left = room.tokens
    for rehearsal in rehearsals:
        size = _tokens(rehearsal)
        if len(found) < room.samples and size <= left:
            found.append(rehearsal)
            left -= size
    return found


def again(earlier: Sequence[Sample], number: int, places: int) -> list[Sample]:
    """Samples to read again in the step that makes version `number`, in the order in which to try them.

    Kinds take turns, and so do the replies of a kind; which ones depends on the number alone. There are several times
    as many as `places`, since some may not be valid any more.
    """
    kinds = _by_kind(earlier)
    ordered = [kinds[kind] for kind in sorted(kinds)]
    found: dict[str, Sample] = {}
    for place in range(number * places, (number + TRIED) * places) if ordered else ():
        own = ordered[place % len(ordered)]
        rehearsal = own[place // len(ordered) % len(own)]
        found.setdefault(rehearsal.turn, rehearsal)
    return list(found.values())


def wished_since(rehearsal: Sample, said_s: float, kept: Mapping[str, KeptHint]) -> list[str]:
    """The hints kept since it was sampled that may oppose it; `kept` as in `is_asked_for`.

    Hints for different kinds of task do not oppose each other.
    """
    later = (hint for hint in kept.values() if hint.made_s > said_s and not _is_among(hint, rehearsal.rehearses))
    return [
        hint.text
        for hint in later
        if not (rehearsal.rehearses and all(are_of_other_tasks(hint.text, words) for words in rehearsal.rehearses))
    ]


def _by_kind(rehearsals: Sequence[Sample]) -> dict[tuple[str, tuple[str, ...]], list[Sample]]:
    kinds: dict[tuple[str, tuple[str, ...]], list[Sample]] = {}
    for rehearsal in rehearsals:
        kinds.setdefault((rehearsal.user, rehearsal.rehearses), []).append(rehearsal)
    return kinds


def is_asked_for(rehearsal: Sample, kept: Mapping[str, KeptHint]) -> bool:
    """Whether its user still wants all that it rehearses; `kept` are the user's hints by their words.

    Not if such a hint was withdrawn, the weights could not learn it, or a later one may be its opposite. A hint in
    other words counts as the same.
    """
    for words in rehearsal.rehearses:
        hint = kept.get(words) or next((one for one in kept.values() if asks_alike(one.text, words)), None)
        if hint is None or hint.needs_prompt:
            return False
        later = (other for other in kept.values() if other.changed_s > hint.changed_s)
        if any(is_about(other.text, words) for other in later):
            return False
    return True


@dataclass(slots=True)
class Retries:
    """What is tried after a step that failed: smaller batches, then samples one at a time, with pauses between.

    If a trainer fails on everything, no sample is to blame: a sample is given up only if it failed alone twice and
    another was trained in between. `most` is the batch to try next if it is smaller than usual.
    """

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


def _is_among(hint: KeptHint, rehearsed: Sequence[str]) -> bool:
    return any(hint.text == words or asks_alike(hint.text, words) for words in rehearsed)


def _tokens(sample: Sample) -> int:
    return max(len(prompt) for prompt in (sample.prompt, *(hint.tokens for hint in sample.hints))) + len(
        sample.response
    )
