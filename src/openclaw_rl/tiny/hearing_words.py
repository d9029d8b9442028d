"""The words and letter groups that the bundled judge's classifier knows: those of the parts that it is taught.

Typing errors are not among them: a mistyped word is read by its letters and by the known word that may be meant.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from random import Random

from openclaw_rl.judge.encoder import letter_groups
from openclaw_rl.judge.reading import plain_words, reading
from openclaw_rl.tiny.judging import situation
from openclaw_rl.tiny.wordings import FILES, phrases_taught, table

_TABLES = (*FILES, *(f"said_{code}" for code in FILES), "lexicon", "others", "scenes", "literals")
_SITUATIONS = 4000  # turns of the toy world that are read, because its words are in no file
_PLACE = re.compile(r"\{\w+\}")
_LEAST = 3  # times that a word must occur in these turns


def known(rows: int, *, seed: int = 0) -> tuple[list[str], list[str]]:
    """The known words and the known letter groups: the most frequent ones, for a table of this many rows.

    Words, including the usual punctuation marks, have at most half of the rows. The first row is for what is unknown.
    """
    counted = Counter(word for name in _TABLES for text in _texts(table(name)) for word in plain_words(text))
    counted.update(word for text in phrases_taught() for word in plain_words(text))
    rng, toy = Random(f"judge words {seed}"), Counter[str]()
    for _ in range(_SITUATIONS):
        made = situation(rng)
        read = reading(made.request, made.reply, made.next_state)
        toy.update((*read.words, *read.request, *read.reply))
    counted.update({word: times for word, times in toy.items() if times >= _LEAST})
    signs = [sign for sign in ".,;:!…" if sign not in counted]
    words = [*signs, *sorted(counted, key=lambda word: (-counted[word], word))][: rows // 2]
    groups = Counter(group for word in words for group in letter_groups(word))
    return words, sorted(groups, key=lambda group: (-groups[group], group))[: rows - 1 - len(words)]


def _texts(data: object) -> Iterator[str]:
    """Every text in a data file, without its slots."""
    if isinstance(data, str):
        yield _PLACE.sub(" ", data)
    elif isinstance(data, dict | list):
        for each in data.values() if isinstance(data, dict) else data:
            yield from _texts(each)
