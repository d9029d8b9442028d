"""Rehearsal samples: replies without a correction, added to a step so that earlier learning is kept.

A correction says nothing about what else its user likes, or what other users like. So steps over corrections alone undo
earlier ones. A rehearsal sample is learned given the kept hints that it follows. If it follows none, it is anchored to
the base model. The first step that uses it consumes it. Later steps read some of them again: one rehearsal keeps a wish
for a step or two, and a wish that was not mentioned since would be unlearned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from openclaw_rl.core.kept_hint import KeptHint
from openclaw_rl.core.sample import Sample
from openclaw_rl.wording.likeness import are_of_other_tasks, asks_alike, is_about

TRIED = 4  # to read again: this many times the samples that there are places for


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
    """Those that there is room for, the first ones first."""
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

    Not if such a hint was withdrawn, or a later one may be its opposite. A hint in other words counts as the same.
    """
    for words in rehearsal.rehearses:
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
