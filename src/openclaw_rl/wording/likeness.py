"""Whether two hints ask for the same, oppose each other or hold for different tasks, by their words alone."""

from __future__ import annotations

import re

from openclaw_rl.wording import words

ALIKE = 0.6  # two hints that share so much of all their words are one wish, said anew
OPPOSED = 0.4  # or so much of the shorter one's, two words at least, where one of them forbids and the other does not
MOST_CHARS = 600  # what is longer describes a task
_NUMBER = re.compile(r"\d[\d.,]*\s*-?\s*([^\W\d]*)")
_NAME = re.compile(r"(?<=[^.!?:\n] )[A-Z][a-z]+\b")  # capitalised within a sentence


def telling_words(text: str) -> set[str]:
    """The words that tell what a hint is about; a plural is as good as its singular."""
    return {word.removesuffix("s") if len(word) > 3 else word for word in words.telling(text, "forbids", "idle")}


def forbids(text: str) -> bool:
    """Whether a text says what is not wanted."""
    return words.holds(text, "forbids")


def likeness(one: str, other: str) -> float:
    """How much of their words two hints share, from 0 to 1; 1 where they differ in case or punctuation alone."""
    if words.words_in(one) == words.words_in(other):
        return 1.0
    mine, theirs = telling_words(one), telling_words(other)
    return len(mine & theirs) / len(mine | theirs) if mine and theirs else 0.0


def is_same_wish(one: str, other: str) -> bool:
    """Whether two hints are about one thing: said in other words, or the opposite of each other.

    Those that begin by saying for what they hold, and differ in it, are not.
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

    Too little to take one for the other's end; enough for nobody to be told both at once. The words that say for what
    a hint holds ("In solutions: ...") are none that they share.
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

    A capital marks a name in most languages; where all nouns have one, it says nothing, and the hint is believed. So is
    what follows a number in a language that no file knows.
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
    """Whether both say for what they hold, and it is not the same."""
    here, there = _where(one), _where(other)
    return bool(here and there and telling_words(here) != telling_words(there))


def _where(text: str) -> str:
    """For what a hint says it holds ("In grades: ...", "When ..., ..."); empty where it does not say."""
    return next((found[1] for pattern in words.patterns("where") if (found := pattern.match(text))), "")
