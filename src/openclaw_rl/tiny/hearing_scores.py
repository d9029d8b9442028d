"""What a classifier hears in parts of sentences that it was not taught: how sure it must be to be seldom wrong."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from openclaw_rl.judge.encoder import Encoder
from openclaw_rl.tiny.hearing import LITERAL, NONE, OTHER, Heard, heard
from openclaw_rl.tiny.hearing_build import FULL, texts_of
from openclaw_rl.tiny.wordings import PartsShare

MOST_WRONG, MOST_WRONG_IN_ONE = 0.01, 0.02  # of all that is said, and of what is said in any one language
LEAST_SURE, DEAREST = 0.5, 60.0  # right hints that a wrong one may cost


@dataclass(frozen=True, slots=True)
class Guess:
    """What was heard in an example: a wish and how sure, and whether wish and literal are right."""

    example: Heard
    wish: str
    sure: float
    is_right: bool
    is_score_right: bool
    score_sure: float


def guesses(encoder: Encoder, examples: Sequence[Heard]) -> list[Guess]:
    """What the classifier hears in each."""
    about, made = encoder.about, []
    for item in examples:
        sound = encoder.hear(item.reading)
        wish, share = max(
            zip((each.name for each in about.wishes), sound.wishes, strict=True), key=lambda pair: pair[1]
        )
        score, score_sure = max(zip(about.scores, sound.scores, strict=True), key=lambda pair: pair[1])
        is_right = wish == item.wish
        if wish in LITERAL:
            share *= sound.literal
            is_right = is_right and (sound.first, sound.last) == (item.first, item.last)
        made.append(Guess(item, wish, share, is_right, score == item.score, score_sure))
    return made


def lines(folder: Path, *, seed: int, count: int) -> Iterator[str]:
    """The figures on kept parts, line by line: overall by how sure it must be, then by wish and by language."""
    rng, texts = Random(f"judge measured {seed}"), texts_of(FULL)
    found = guesses(Encoder.load(folder), [heard(rng, texts, PartsShare.KEPT) for _ in range(count)])
    yield f"{count} examples of parts kept back; scores right {_share([one.is_score_right for one in found])}"
    for sure in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8):
        certain = [one.is_score_right for one in found if one.score_sure >= sure]
        yield f"  scores at least {sure} sure: {len(certain) / count:.1%}, of them right {_share(certain)}"
    for sure in (0.5, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97):
        yield f"  wishes at least {sure} sure: {_heard(found, sure)}"
    for name, group in sorted(_grouped(found, lambda one: one.example.language or "other").items()):
        yield f"  {name} at 0.9: {_heard(group, 0.9)}"
    for name, group in sorted(_grouped(found, lambda one: one.example.wish).items()):
        yield f"  {name} at 0.9: {_heard(group, 0.9)}"
    chosen = certainties(found)
    yield f"at most {MOST_WRONG:.1%} wrong: {', '.join(f'{name} {sure:.2f}' for name, sure in sorted(chosen.items()))}"


def certainties(found: Sequence[Guess]) -> dict[str, float]:
    """For each wish how sure one must be of it, so that most is heard and no more than MOST_WRONG of it all is wrong.

    Nor more than MOST_WRONG_IN_ONE in any language. One price of a wrong hint holds for all wishes, in right ones;
    the least is found that keeps wrong ones so few.
    """
    groups = {name: group for name, group in _grouped(found, lambda one: one.wish).items() if name not in (NONE, OTHER)}
    low, high = 0.0, DEAREST
    for _ in range(25):
        price = (low + high) / 2
        chosen = {name: _best(group, price) for name, group in groups.items()}
        low, high = (price, high) if _is_too_often_wrong(found, chosen) else (low, price)
    return {name: _best(group, high) for name, group in groups.items()}


def _is_too_often_wrong(found: Sequence[Guess], chosen: Mapping[str, float]) -> bool:
    def share(group: Sequence[Guess]) -> float:
        wrong = [one for one in group if not one.is_right and one.sure >= chosen.get(one.wish, math.inf)]
        return len(wrong) / len(group)

    spoken = _grouped([one for one in found if one.example.language], lambda one: one.example.language)
    return share(found) > MOST_WRONG or any(share(group) > MOST_WRONG_IN_ONE for group in spoken.values())


def _best(group: Sequence[Guess], price: float) -> float:
    """How sure one must be for the most right hints, less the price of each wrong one."""
    best, worth, sure = 0.0, 0.0, 1.0
    for one in sorted(group, key=lambda one: -one.sure):
        worth += 1.0 if one.is_right else -price
        if worth > best:
            best, sure = worth, one.sure
    return max(LEAST_SURE, sure)


def _heard(found: Sequence[Guess], sure: float) -> str:
    said = [one for one in found if one.wish not in (NONE, OTHER) and one.sure >= sure]
    due = sum(one.example.wish not in (NONE, OTHER) for one in found)
    right, wrong = sum(one.is_right for one in said), sum(not one.is_right for one in said)
    return f"right {right / due if due else 0:.1%} of {due}, wrong {wrong / len(found):.2%} of {len(found)}"


def _grouped(found: Sequence[Guess], key: Callable[[Guess], str]) -> dict[str, list[Guess]]:
    groups: dict[str, list[Guess]] = defaultdict(list)
    for one in found:
        groups[key(one)].append(one)
    return groups


def _share(found: Sequence[bool]) -> str:
    return f"{sum(found) / len(found):.1%}" if found else "-"
