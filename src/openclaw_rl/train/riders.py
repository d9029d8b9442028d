"""Riders: replies that nobody corrected, which go along in a step so that what was learned before holds.

A correction says nothing of what else its user likes, nor of what other users do: steps over corrections alone undo
earlier ones. A rider is learned from behind the kept hints that it follows, and where it follows none it is held to the
base model. Each is consumed by the first step it rides in. Later steps read some of those again: a reply that rode once
holds what it followed for a step or two, and a wish that nobody came back to since was unlearned by then. So those that
rode least go first, the new ones before all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openclaw_rl.core.kept_hint import KeptHint
from openclaw_rl.core.sample import Sample
from openclaw_rl.train.assemble import is_about


@dataclass(frozen=True, slots=True)
class Room:
    """For so many riders, and for so many tokens of theirs, what they said and what is read in front of it."""

    riders: int
    tokens: int


def chosen(riders: Sequence[Sample], room: Room) -> list[Sample]:
    """Those that there is room for, in turn from each kind: of a user, and of the hints that they rehearse.

    The first ones of each kind. Kinds of which more wait come first, so that all last about as long.
    """
    waiting = sorted(_by_kind(riders).values(), key=len, reverse=True)
    found: list[Sample] = []
    left = room.tokens
    for place in range(max(map(len, waiting), default=0)):
        for rider in (kind[place] for kind in waiting if place < len(kind)):
            size = _tokens(rider)
            if len(found) < room.riders and size <= left:
                found.append(rider)
                left -= size
    return found


def _by_kind(riders: Sequence[Sample]) -> dict[tuple[str, tuple[str, ...]], list[Sample]]:
    kinds: dict[tuple[str, tuple[str, ...]], list[Sample]] = {}
    for rider in riders:
        kinds.setdefault((rider.user, rider.rehearses), []).append(rider)
    return kinds


def is_asked_for(rider: Sample, kept: Mapping[str, KeptHint]) -> bool:
    """Whether all that it rehearses still holds; `kept` are its user's hints by their words.

    One that was taken back, worded anew, or that a later one may be the opposite of does not: who asks again in other
    words was misheard as a rule.
    """
    for words in rider.rehearses:
        hint = kept.get(words)
        if hint is None:
            return False
        later = (other for other in kept.values() if other.changed_s > hint.changed_s)
        if any(is_about(other.text, words) for other in later):
            return False
    return True


def _tokens(sample: Sample) -> int:
    return max(len(prompt) for prompt in (sample.prompt, *(hint.tokens for hint in sample.hints))) + len(
        sample.response
    )
