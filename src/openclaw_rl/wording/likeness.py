"""Whether two hints ask for the same, oppose each other or apply to different tasks, judged only by their words."""

from __future__ import annotations

import re

from openclaw_rl.wording import words

ALIKE = 0.6  # two hints that share this much of all their words are the same wish
OPPOSED = 0.4  # or this much of the shorter one's, at least two words, if one of them forbids and the other does not
MOST_CHARS = 600  # longer text describes a task
_NUMBER = re.compile(r"\d[\d.,]*\s*-?\s*([^\W\d]*)")
_NAME = re.compile(r"(?<=[^.!?:\n] )[A-Z][a-z]+\b")  # capitalised within a sentence


def telling_words(text: str) -> set[str]:
    """The words that a hint is about; a plural equals its singular."""
    return {word.removesuffix("s") if len(word) > 3 else word for word in words.telling(text, "forbids", "idle")}


def forbids(text: str) -> bool:
    """Whether a text forbids something."""
    return words.holds(text, "forbids")


def likeness(one: str, other: str) -> float:
    """How much of their words two hints share, from 0 to 1; 1 if they differ in case or punctuation alone."""
    if words.words_in(one) == words.words_in(other):
        return 1.0
    mine, theirs = telling_words(one), telling_words(other)
    return len(mine & theirs) / len(mine | theirs) if mine and theirs else 0.0


def is_same_wish(one: str, other: str) -> bool:
    """Whether two hints are about the same thing: in other words, or as opposites.

    Those that begin with different scopes of application are not.
    """
    if are_of_other_tasks(one, other):
        return False
    if likeness(one, other) >= ALIKE:
        return True
    mine, theirs = telling_words(one), telling_words(other)
    shared = len(mine & theirs)
    return forbids(one) != forbids(other) and shared >= 2 and shared >= OPPOSED * min(len(mine), len(theirs))


def asks_alike(one: str, other: str) -> bool:
    """Whether two hints ask for the same in other words, and not for its opposite."""
    return not are_of_other_tasks(one, other) and likeness(one, other) >= ALIKE and forbids(one) == forbids(other)


def may_oppose(one: str, other: str) -> bool:
    """Whether two hints may contradict each other: one of them forbids, the other does not, and they share a word.

    Too little for one to replace the other; enough that both are never used at once. The words that say for what
    a hint applies ("In solutions: ...") do not count as shared.
    """
    if are_of_other_tasks(one, other):
        return False
    mine, theirs = (telling_words(text) - telling_words(_where(text)) for text in (one, other))
    return forbids(one) != forbids(other) and bool(mine & theirs)


def says_no_more(new: str, old: str) -> bool:
    """Whether an older hint says all of a newer one already, and not its opposite."""
    return telling_words(new) <= telling_words(old) and forbids(new) == forbids(old)


def is_about(known: str, said: str) -> bool:
    """Whether one hint says the same as the other, or may say the opposite."""
    return is_same_wish(known, said) or may_oppose(known, said)


def is_general(text: str, asked: str) -> bool:
    """Whether a hint would mean the same in another task: it names no number but a measure, and nobody in `asked`.

    A capital marks a name in most languages; if all nouns have one, it says nothing, and the hint is accepted. So is
    the word after a number in a language without a file.
    """
    if words.length(text) > MOST_CHARS:
        return False
    spoken = words.language_of(text)
    for found in _NUMBER.finditer(text):
        if not words.starts_with(found[1], "measures") and not (found[1] and spoken is None):
            return False
    if spoken is not None and words.language(spoken).capitals != "names":
        return True
    return not any(re.search(rf"\b{name}\b", asked) for name in _NAME.findall(text))


def are_of_other_tasks(one: str, other: str) -> bool:
    """Whether both say what they apply to, and it differs."""
    here, there = _where(one), _where(other)
    return bool(here and there and telling_words(here) != telling_words(there))


def _where(text: str) -> str:
    """What a hint says it applies to ("In grades: ...", "When ..., ..."); empty if it does not say."""
    return next((found[1] for pattern in words.patterns("where") if (found := pattern.match(text))), "")
