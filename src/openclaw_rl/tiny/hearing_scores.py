"""Measures what the classifier recognises in parts that it was not taught, and how sure it must be."""

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

MOST_WRONG, MOST_WRONG_IN_ONE = 0.01, 0.02  # share of wrong hints: of all messages, and of those in any one language
LEAST_SURE, DEAREST = 0.5, 60.0  # the least certainty that is required; the most right hints that a wrong one may cost


@dataclass(frozen=True, slots=True)
class Guess:
    """What was recognised in an example: a wish, the certainty, and whether wish and literal are right.

    The score is only recorded as right or wrong, with its certainty. Certainties are probabilities.
    """

    example: Heard
    wish: str
    sure: float
    is_right: bool
    is_score_right: bool
    score_sure: float


def guesses(encoder: Encoder, examples: Sequence[Heard]) -> list[Guess]:
    """What the classifier recognises in each example: the likeliest wish and the likeliest score.

    The certainty of a wish with a literal is multiplied by that of the literal.
    """
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
    """The figures on kept parts, line by line: overall by required certainty, then by language and by wish."""
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
    """The certainty that is required for each wish, so that most hints are found and wrong ones are rare.

    At most `MOST_WRONG` of all messages give a wrong hint, and at most `MOST_WRONG_IN_ONE` of those in any language. A
    wrong hint costs as much as a number of right ones, which is the same for all wishes: the smallest number that keeps
    wrong hints this rare, up to `DEAREST`.
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
    """The required certainty with the most right hints minus the price of the wrong ones; at least `LEAST_SURE`."""
    best, worth, sure = 0.0, 0.0, 1.0
    for one in sorted(group, key=lambda one: -one.sure):
        worth += 1.0 if one.is_right else -price
        if worth > best:
            best, sure = worth, one.sure
    return max(LEAST_SURE, sure)


def _heard(found: Sequence[Guess], sure: float) -> str:
    hints = [one for one in found if one.wish not in (NONE, OTHER) and one.sure >= sure]
    due = sum(one.example.wish not in (NONE, OTHER) for one in found)
    right, wrong = sum(one.is_right for one in hints), sum(not one.is_right for one in hints)
    return f"right {right / due if due else 0:.1%} of {due}, wrong {wrong / len(found):.2%} of {len(found)}"


def _grouped(found: Sequence[Guess], key: Callable[[Guess], str]) -> dict[str, list[Guess]]:
    groups: dict[str, list[Guess]] = defaultdict(list)
    for one in found:
        groups[key(one)].append(one)
    return groups


def _share(found: Sequence[bool]) -> str:
    return f"{sum(found) / len(found):.1%}" if found else "-"
