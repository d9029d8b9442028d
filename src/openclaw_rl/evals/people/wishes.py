"""A hidden wish: the kind of task it concerns, its wording, and its check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from openclaw_rl.evals.people import rules
from openclaw_rl.tiny import world


class WishKind(StrEnum):
    """What a user asks for."""

    SOLVE = "solve"  # a word problem
    GRADE = "grade"  # of a student's work
    COMMENT = "comment"  # to the student, on that work
    THANKS = "thanks"  # a reply to thanks, nothing more
    FILED = "filed"  # the answer in a file: a report that it was done


@dataclass(frozen=True, slots=True)
class HiddenWish:
    """A user's wish about replies to one kind of task, said only if a reply misses it.

    `follows` is the strict rule. `correction` words the message after a reply that missed it, differently each time.
    `stated` words it as a judge that knew it would.
    """

    name: str
    kind: WishKind
    words: str
    follows: Callable[[str], bool]
    correction: Callable[[Random], str]
    stated: Callable[[Random], str]


def natural(text: str) -> bool:
    """Plain sentences with the numbers in them: nothing that a chat program would lay out."""
    return not rules.looks_generated(text) and rules.has_prose(text)


def detailed(text: str) -> bool:
    """At least three real sentences, a reason and a calculation, and no form-like layout."""
    said = rules.plain(text)
    gives_reason = any(f" {word} " in f" {said.lower()} " for word in ("because", "since", "as a result", "therefore"))
    return (
        not rules.looks_generated(text)
        and rules.has_prose(text, sentences=3)
        and gives_reason
        and rules.CALCULATION.search(said) is not None
    )


def friendly(text: str) -> bool:
    """A warm word and an exclamation mark, in sentences that speak of the work itself."""
    said = rules.plain(text).lower()
    is_warm = any(word in said for word in WARM)
    return not rules.looks_generated(text) and rules.has_prose(text) and is_warm and "!" in said


WARM = (
    "great", "lovely", "happy to help", "well done", "keep going", "nice", "good luck", "wonderful", "proud", "glad",
    "good job", "good work", "keep it up", "you can do", "thank you", "fantastic", "excellent",
)  # fmt: skip


def in_style(name: str, kind: WishKind, style: world.Style, words: str, follows: Callable[[str], bool]) -> HiddenWish:
    """A wish about style, in the words of the toy world's people."""
    return HiddenWish(
        name,
        kind,
        words,
        follows,
        correction=lambda rng: world.correction(style, rng),
        stated=lambda rng: world.wish_hint(style, rng),
    )


STUDENT = in_style(
    "natural",
    WishKind.SOLVE,
    world.Style.NATURAL,
    "no AI-looking style: plain sentences, no markdown, no lists, no boxed answer",
    natural,
)
ASSISTANT = in_style(
    "detailed",
    WishKind.GRADE,
    world.Style.DETAILED,
    "specific and detailed: whole sentences, the calculation, and the reason for the grade",
    detailed,
)
TEACHER = in_style(
    "friendly",
    WishKind.COMMENT,
    world.Style.FRIENDLY,
    "friendly: a warm tone, encouraging, in whole sentences about the work",
    friendly,
)
