"""Variants of a request, made from its text alone: with other numbers, and with less in it. No language is assumed.

What a hint does to a reply is tried on them: a model that is told a wish may solve one example rightly, and not others.
"""

from __future__ import annotations

import re
import unicodedata
from random import Random

CHANGED_DIGITS = 2  # the last ones of a number: a year remains a year, and a price about what it was
TRIES = 20  # for each variant that is wanted
LEAST_WORDS = 3  # of a request with less in it
MOST_LEFT = 0.75  # share of the words that it has at most: it must be another request
_NUMBER = re.compile(r"\d+")
_SENTENCE_END = ".!?;:\u3002\uff01\uff1f\u061f\u0964\n"
_SENTENCE = re.compile(f"[^{_SENTENCE_END}]*[{_SENTENCE_END}]*")


def with_other_numbers(text: str, most: int) -> list[str]:
    """At most this many different variants of a text, the same ones each time; none if it has no number.

    In every other one equal numbers become different ones: they may mean the same or be equal by chance.
    """
    rng, found = Random(text), dict[str, None]()
    for _ in range(TRIES * most if _NUMBER.search(text) else 0):
        if len(found) == most:
            break
        if (made := _renumbered(text, rng, are_kept_equal=len(found) % 2 == 0)) != text:
            found[made] = None
    return list(found)


def how_many_numbers(text: str) -> int:
    """The numbers of a text that `with_other_numbers` replaces."""
    return len(_NUMBER.findall(text))


def with_less(text: str, most: int) -> list[str]:
    """At most this many different variants in which a sentence ends earlier or is missing; numbers are others, too."""
    rng, found = Random(text), dict[str, None]()
    for _ in range(TRIES * most):
        if len(found) == most:
            break
        made = _shortened(text, rng)
        if LEAST_WORDS <= len(made.split()) <= MOST_LEFT * len(text.split()):
            found[_renumbered(made, rng, are_kept_equal=len(found) % 2 == 0)] = None
    return list(found)


def _renumbered(text: str, rng: Random, *, are_kept_equal: bool) -> str:
    """The text with other numbers of the same lengths."""
    others: dict[str, str] = {}

    def other(found: re.Match[str]) -> str:
        made = _other(found[0], rng)
        return others.setdefault(found[0], made) if are_kept_equal else made

    return _NUMBER.sub(other, text)


def _other(number: str, rng: Random) -> str:
    """A number in the same script. It begins with no zero unless the given one does."""
    kept = max(0, len(number) - CHANGED_DIGITS)
    made = list(number[:kept])
    for place in range(kept, len(number)):
        least = 1 if place == 0 and unicodedata.decimal(number[0]) else 0
        zero = ord(number[place]) - unicodedata.decimal(number[place])
        made.append(chr(zero + rng.randint(least, 9)))
    return "".join(made)


def _shortened(text: str, rng: Random) -> str:
    """The text without the last words of a sentence, whose end mark stays, or without the whole sentence."""
    sentences = [found for found in _SENTENCE.findall(text) if found.strip()]
    if not sentences:
        return text
    at = rng.randrange(len(sentences))
    words = sentences[at].split()
    left = words[: rng.randrange(len(words))]
    end = sentences[at][len(sentences[at].rstrip(_SENTENCE_END)) :]
    sentences[at] = " " * bool(at) + " ".join(left) + end if left else ""
    return "".join(sentences).strip()
