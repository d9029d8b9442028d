"""How much one user may teach: their share of a step, and what they repeat or send in masses within a day."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from openclaw_rl.core.ledger import DropReason
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.train.settings import TrainStageSettings

DAY_S = 86_400
USERS = 10_000  # remembered within a day; the longest unheard are forgotten first


def shared_fairly(samples: Sequence[Sample], most: int, teaches: Callable[[Sample], bool]) -> list[Sample]:
    """The samples without the teaching ones beyond `most` of one user, in their order; those wait for another step.

    Riders, which teach nothing by themselves, are no part of anybody's share: they would stand in their own user's way.
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


def most_of_one(settings: TrainStageSettings) -> int:
    """How many samples of one user a step of a shared version may hold where several users teach."""
    return max(1, int(settings.user_share * settings.batch_size))


@dataclass(slots=True)
class Floods:
    """Counts what each user teaches in a day (UTC), in memory: a restart begins the day anew.

    A correction is the same where its score and the words of its hints are.
    """

    settings: TrainStageSettings
    now_s: Callable[[], float] = time.time
    _day: int = -1
    _users: OrderedDict[str, Counter[str]] = field(default_factory=OrderedDict)
    _seen: set[str] = field(default_factory=set)

    def refusal(self, turn: Turn, verdict: Verdict) -> DropReason | None:
        """Why this is one too many of its user's; None where it is not. Then it counts, once however often asked."""
        if turn.id in self._seen:
            return None
        counts = self._counts(turn.user)
        words = _words(verdict)
        if words and self._is_over(counts[words], self.settings.same_words_a_day):
            return DropReason.REPEATED
        if self._is_over(counts[""], self.settings.user_samples_a_day):
            return DropReason.TOO_MANY
        counts[""] += 1
        if words:
            counts[words] += 1
        self._seen.add(turn.id)
        return None

    def let_go(self) -> None:
        """Begins the day anew."""
        self._users.clear()
        self._seen.clear()

    @staticmethod
    def _is_over(count: int, most: int) -> bool:
        return bool(most) and count >= most

    def _counts(self, user: str) -> Counter[str]:
        today = int(self.now_s() // DAY_S)
        if today != self._day:
            self._day = today
            self._users.clear()
            self._seen.clear()
        counts = self._users.setdefault(user, Counter())
        self._users.move_to_end(user)
        if len(self._users) > USERS:
            self._users.popitem(last=False)
        return counts


def _words(verdict: Verdict) -> str:
    """What a verdict teaches, as one text; empty where it holds no words and is not the user's own thumb."""
    said = sorted(" ".join(hint.text.casefold().split()) for hint in verdict.hints)
    if said:
        return f"{verdict.score}: {' / '.join(said)}"
    return f"{verdict.score}: a thumb" if verdict.source is VerdictSource.FEEDBACK else ""
