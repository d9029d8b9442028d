"""How much of a step may come from one user, and which samples are not to be learned together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from openclaw_rl.core.sample import Sample
from openclaw_rl.train.settings import TrainSettings


def shared_fairly(samples: Sequence[Sample], most: int, teaches: Callable[[Sample], bool]) -> list[Sample]:
    """The samples without the teaching ones beyond `most` of one user, in their order; those wait for another step.

    Rehearsal samples do not count: they have no signal, and would take their own user's places.
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
    """The samples without teaching ones that must not be learned together with the oldest of them.

    Samples of refused versions are learned separately, one user's at a time: a sample that made a version bad must not
    cause other users' corrections to be refused with it again.
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
