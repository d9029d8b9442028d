"""Riders: replies that nobody corrected, which go along in a step so that what was learned before holds.

A correction says nothing of what else its user likes, nor of what other users do: steps over corrections alone undo
earlier ones. A rider is learned from behind the kept hints that it follows, and where it follows none it is held to the
base model. Each is consumed by the first step it rides in. Later steps read some of those again: a reply that rode once
holds what it followed for a step or two, and a wish that nobody came back to since was unlearned by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from openclaw_rl.core.kept_hint import KeptHint
from openclaw_rl.core.sample import Sample
from openclaw_rl.wording.likeness import are_of_other_tasks, asks_alike, is_about

TRIED = 4  # times as many riders as there are places for those that are read again


@dataclass(frozen=True, slots=True)
class RehearsalBudget:
    """For so many riders, and for so many tokens of theirs, what they said and what is read in front of it."""

    riders: int
    tokens: int

    def beside(self, riders: Sequence[Sample]) -> RehearsalBudget:
        """What these leave of it."""
        return RehearsalBudget(self.riders - len(riders), self.tokens - sum(_tokens(rider) for rider in riders))


def chosen(riders: Sequence[Sample], room: RehearsalBudget) -> list[Sample]:
    """Those that there is room for, in turn from each kind: of a user, and of the hints that they rehearse.

    The first ones of each kind. Kinds of which more wait come first, so that all last about as long.
    """
    waiting = sorted(_by_kind(riders).values(), key=len, reverse=True)
    places = range(max(map(len, waiting), default=0))
    return fitting([kind[place] for place in places for kind in waiting if place < len(kind)], room)


def fitting(riders: Iterable[Sample], room: RehearsalBudget) -> list[Sample]:
    """Those that there is room for, the first ones first."""
    found: list[Sample] = []
    left = room.tokens
    for rider in riders:
        size = _tokens(rider)
        if len(found) < room.riders and size <= left:
            found.append(rider)
            left -= size
    return found


def again(rode: Sequence[Sample], number: int, places: int) -> list[Sample]:
    """Riders to be read again in the step that makes version `number`, in the order to try them.

    Each kind has its turn, and within a kind each reply; which ones depends on the number alone. Several times as many
    as there are `places`, since some may not hold any more.
    """
    kinds = _by_kind(rode)
    ordered = [kinds[kind] for kind in sorted(kinds)]
    found: dict[str, Sample] = {}
    for place in range(number * places, (number + TRIED) * places) if ordered else ():
        own = ordered[place % len(ordered)]
        rider = own[place // len(ordered) % len(own)]
        found.setdefault(rider.turn, rider)
    return list(found.values())


def wished_since(rider: Sample, said_s: float, kept: Mapping[str, KeptHint]) -> list[str]:
    """The hints taken into use since it was said that may speak against it; `kept` as in `is_asked_for`.

    What rehearses hints for one kind of task has nothing to do with those for another.
    """
    later = (hint for hint in kept.values() if hint.made_s > said_s and not _is_among(hint, rider.rehearses))
    return [
        hint.text
        for hint in later
        if not (rider.rehearses and all(are_of_other_tasks(hint.text, words) for words in rider.rehearses))
    ]


def _by_kind(riders: Sequence[Sample]) -> dict[tuple[str, tuple[str, ...]], list[Sample]]:
    kinds: dict[tuple[str, tuple[str, ...]], list[Sample]] = {}
    for rider in riders:
        kinds.setdefault((rider.user, rider.rehearses), []).append(rider)
    return kinds


def is_asked_for(rider: Sample, kept: Mapping[str, KeptHint]) -> bool:
    """Whether all that it rehearses still holds; `kept` are its user's hints by their words.

    One that was taken back, or that a later one may be the opposite of, does not. In other words it is the same.
    """
    for words in rider.rehearses:
        hint = kept.get(words) or next((one for one in kept.values() if asks_alike(one.text, words)), None)
        if hint is None:
            return False
        later = (other for other in kept.values() if other.changed_s > hint.changed_s)
        if any(is_about(other.text, words) for other in later):
            return False
    return True


def _is_among(hint: KeptHint, rehearsed: Sequence[str]) -> bool:
    return any(hint.text == words or asks_alike(hint.text, words) for words in rehearsed)


def _tokens(sample: Sample) -> int:
    return max(len(prompt) for prompt in (sample.prompt, *(hint.tokens for hint in sample.hints))) + len(
        sample.response
    )
