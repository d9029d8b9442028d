"""Which words a classifier knows, and how it reads one that it does not: as a misspelt known word, and by its letters.

A word that was not taught gets no number of its own: a random one would be less useful than its letters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

UNKNOWN = 0  # the row of every word that is not known
SHORTEST_SLIP = 4  # letters of a word that may be a mistyped one
_SIZES = (3, 4, 5)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_VOWELS, _DOUBLED, _ONE = re.compile("[aeiou]"), re.compile(r"(.)\1+"), r"\1"


@dataclass(frozen=True, slots=True)
class WordRows:
    """The rows of a table that a word is read by: `whole` is a known word's (UNKNOWN without one), `parts` letters'."""

    whole: int
    is_known: bool  # False if `whole` is only the word it may be a slip of
    parts: tuple[int, ...]


class Spelling:
    """Known words, the most frequent first, and known groups of letters: a row each, after that of the unknown."""

    def __init__(self, words: Sequence[str], parts: Sequence[str]) -> None:
        self._words = {word: row for row, word in enumerate(words, UNKNOWN + 1)}
        self._parts = {part: row for row, part in enumerate(parts, UNKNOWN + 1 + len(words))}
        self._bones: dict[str, int] = {}
        for word, row in self._words.items():
            if len(word) >= SHORTEST_SLIP:
                self._bones.setdefault(_bones(word), row)

    def rows(self, word: str) -> WordRows:
        """What a word, folded as `reading` folds it, is read by."""
        parts = tuple(self._parts[part] for part in letter_groups(word) if part in self._parts)
        row = self._words.get(word)
        if row is not None:
            return WordRows(row, is_known=True, parts=parts)
        return WordRows(self._meant(word), is_known=False, parts=parts)

    def _meant(self, word: str) -> int:
        """The most frequent known word that one slip makes into this, or one with the same consonants."""
        if len(word) < SHORTEST_SLIP or not word.isalpha():
            return UNKNOWN
        near = [self._words[one] for one in _one_slip_away(word) if one in self._words]
        return min(near) if near else self._bones.get(_bones(word), UNKNOWN)


def letter_groups(word: str) -> list[str]:
    """The groups of three to five letters of a word, with its ends marked; a punctuation mark has none."""
    whole = f"<{word}>"
    sizes = _SIZES if len(word) > 1 else ()
    return [whole[at : at + size] for size in sizes for at in range(len(whole) - size + 1)]


def spelling_bytes(words: Sequence[str], parts: Sequence[str]) -> bytes:
    """A spelling's words and groups, one per line with an empty line between them, as in a model folder."""
    return "\n\n".join("\n".join(listed) for listed in (words, parts)).encode()


def spelling_of(held: bytes) -> Spelling:
    """The spelling that `spelling_bytes` wrote."""
    words, _, parts = held.decode().partition("\n\n")
    return Spelling(words.splitlines(), parts.splitlines())


def _one_slip_away(word: str) -> Iterator[str]:
    """All that a letter too many, too few, another one, or two that changed places can have made into the word."""
    for at in range(len(word) + 1):
        before, after = word[:at], word[at:]
        for letter in _LETTERS:
            yield before + letter + after
            if after:
                yield before + letter + after[1:]
        if after:
            yield before + after[1:]
        if len(after) > 1:
            yield before + after[1] + after[0] + after[2:]


def _bones(word: str) -> str:
    """What is left of a word without its vowels and doubled letters."""
    return _DOUBLED.sub(_ONE, word[:1] + _VOWELS.sub("", word[1:]))
