"""Measures what the bundled judge recognises in messages that it was not taught, and how sure it must be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from openclaw_rl.judge.encoder import Encoder
from openclaw_rl.tiny.hearing import LITERAL, NONE, OTHER, Heard, other_heard, wish_heard
from openclaw_rl.tiny.hearing_build import FULL, texts_of
from openclaw_rl.tiny.sayings import OTHERS, other_said, said
from openclaw_rl.tiny.wordings import table

MESSAGES = "certainty"  # the file of messages that are measured with
MOST_WRONG, MOST_WRONG_IN_ONE = 0.01, 0.02  # share of wrong hints: of all messages, and of those in any one language
LEAST_SURE = 0.5  # the least certainty that is required


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


def examples(rng: Random, texts: Sequence[str], *, times: int) -> list[Heard]:
    """Every message of the file, this many times: each time with other literals, after another turn."""
    held: Mapping[str, Mapping[str, list[str]]] = table(MESSAGES)  # type: ignore[assignment]
    return [
        other_heard(rng, texts, code, other_said(rng, text), wish)
        if wish in OTHERS
        else wish_heard(rng, texts, said(rng, code, text, wish=wish))
        for code, listed in held.items()
        for wish, messages in listed.items()
        for text in messages
        for _ in range(times)
    ]


def guesses(encoder: Encoder, found: Sequence[Heard]) -> list[Guess]:
    """What the classifier recognises in each example: the likeliest wish and the likeliest score.

    The certainty of a wish with a literal is multiplied by that of the literal.
    """
    about, made = encoder.about, []
    for item in found:
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


def lines(folder: Path, *, seed: int, times: int) -> Iterator[str]:
    """The figures, line by line: overall by required certainty, then by language and by wish."""
    found = guesses(Encoder.load(folder), examples(Random(f"judge measured {seed}"), texts_of(FULL), times=times))
    yield f"{len(found)} examples of messages that are not taught; scores right {_share(found)}"
    for sure in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8):
        certain = [one for one in found if one.score_sure >= sure]
        yield f"  scores at least {sure} sure: {len(certain) / len(found):.1%}, of them right {_share(certain)}"
    for sure in (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95):
        yield f"  wishes at least {sure} sure: {_heard(found, sure)}"
    chosen = certainty(found)
    for name, group in sorted(_grouped(found, lambda one: one.example.language).items()):
        yield f"  {name} at {chosen}: {_heard(group, chosen)}"
    for name, group in sorted(_grouped(found, lambda one: one.example.wish).items()):
        yield f"  {name} at {chosen}: {_heard(group, chosen)}"
    wished = [one for one in found if one.example.wish not in (NONE, OTHER)]
    yield f"  all wishes at {chosen}: {_heard(wished, chosen)}"
    yield f"at most {MOST_WRONG:.1%} wrong, and {MOST_WRONG_IN_ONE:.1%} in any one language: {chosen}"


def certainty(found: Sequence[Guess]) -> float:
    """The least certainty, in hundredths, that leaves few enough wrong hints; 1 if none does."""
    spoken = [found, *_grouped(found, lambda one: one.example.language).values()]
    for hundredths in range(round(100 * LEAST_SURE), 100):
        sure = hundredths / 100
        shares = [_wrong(group, sure) / len(group) for group in spoken]
        if shares[0] <= MOST_WRONG and max(shares[1:]) <= MOST_WRONG_IN_ONE:
            return sure
    return 1.0


def _wrong(found: Sequence[Guess], sure: float) -> int:
    return sum(one.sure >= sure and not one.is_right and one.wish not in (NONE, OTHER) for one in found)


def _heard(found: Sequence[Guess], sure: float) -> str:
    due = [one for one in found if one.example.wish not in (NONE, OTHER)]
    right = sum(one.is_right and one.sure >= sure for one in due) / len(due) if due else 0
    return f"right {right:.1%} of {len(due)}, wrong {_wrong(found, sure) / len(found):.2%} of {len(found)}"


def _grouped(found: Sequence[Guess], key: Callable[[Guess], str]) -> dict[str, list[Guess]]:
    groups: dict[str, list[Guess]] = defaultdict(list)
    for one in found:
        groups[key(one)].append(one)
    return groups


def _share(found: Sequence[Guess]) -> str:
    return f"{sum(one.is_score_right for one in found) / len(found):.1%}" if found else "-"
