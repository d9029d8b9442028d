"""When a step is due, and over which samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from openclaw_rl.core.ledger import DropReason
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.train.rehearsal import RehearsalBudget, chosen
from openclaw_rl.train.settings import TrainSettings, window_minutes


def is_open(window: str, minute: int) -> bool:
    """Whether a minute of the local day lies in the window; one that ends before it starts spans midnight."""
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
    """How many samples of one user a step of a shared version may hold where several users teach."""
    return max(1, int(settings.user_share * settings.batch_size))
