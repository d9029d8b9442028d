"""Texts as people type them in a hurry: with typing errors and short forms, in five languages."""

from __future__ import annotations

import re
from functools import lru_cache
from random import Random

from openclaw_rl.tiny.wordings import table

_ROWS = ("1234567890", "qwertyuiop", "asdfghjkl", "zxcvbnm")
_WORD = re.compile(r"\w+")


def typed(rng: Random, text: str, code: str, *, at: int, written: str) -> tuple[str, int]:
    """The text as typed in a hurry, and the index of the literal `written` in it, which is not changed.

    `at` is the index of the literal in the given text; -1, also in the result, if there is none.
    """
    form, share = rng.random(), rng.choice((0.05, 0.1, 0.15, 0.25, 0.4))
    before, after = (text[:at], text[at + len(written) :]) if at >= 0 else (text, "")
    if form < 0.45:
        before, after = (_texted(rng, part, code) for part in (before, after))
    if form > 0.3:
        before, after = (_slipped(rng, part, share) for part in (before, after))
    if rng.random() < 0.5:
        before, after = before.lower(), after.lower()
    return (f"{before}{written}{after}", len(before)) if at >= 0 else (before, -1)


def _slipped(rng: Random, text: str, share: float) -> str:
    """The text with typing errors: one, sometimes two, in about this share of its words of four letters or more.

    Words of three letters have half of that share. Sometimes apostrophes or a blank are missing.
    """

    def slip(found: re.Match[str]) -> str:
        word = found[0]
        if len(word) < 3 or word[0].isdigit() or rng.random() > share * (0.5 if len(word) == 3 else 1):
            return word
        word = _slip(rng, word)
        return _slip(rng, word) if len(word) > 5 and rng.random() < 0.2 else word

    text = _WORD.sub(slip, text)
    form = rng.random()
    if form < 0.1:
        text = text.replace("'", "").replace("’", "")
    elif form < 0.2:  # a blank between two words is missing
        places = [found.start() for found in re.finditer(r"(?<=\w) (?=\w)", text)]
        if places:
            place = rng.choice(places)
            text = text[:place] + text[place + 1 :]
    return text


def _slip(rng: Random, word: str) -> str:
    at, how = rng.randrange(len(word)), rng.random()
    if how < 0.25:  # two letters are swapped
        at = min(at, len(word) - 2)
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    if how < 0.5:  # a letter is missing
        return word[:at] + word[at + 1 :]
    if how < 0.62:  # a letter is doubled
        return word[:at] + word[at] + word[at:]
    near = _beside().get(word[at].lower(), "")
    if not near:
        return word[:at] + word[at + 1 :]
    letter = rng.choice(near)
    return word[:at] + letter + word[at + (how < 0.85) :]  # a neighbouring key in place of the letter, or before it


def _texted(rng: Random, text: str, code: str) -> str:
    """The text with short forms as in chat messages, and sometimes without apostrophes or punctuation."""
    for long, short in _short_forms(code):
        if rng.random() < 0.6:
            text = long.sub(lambda _found, short=short: rng.choice(short), text)  # type: ignore[misc]
    if rng.random() < 0.6:
        text = text.replace("'", "").replace("’", "")
    if rng.random() < 0.4:
        text = re.sub(r"[.,;]", "", text)
    return text


@lru_cache
def _short_forms(code: str) -> list[tuple[re.Pattern[str], list[str]]]:
    forms = table("slips")[code]
    assert isinstance(forms, dict)
    return [(re.compile(rf"\b{re.escape(long)}\b", re.IGNORECASE), short) for long, short in forms.items()]


@lru_cache
def _beside() -> dict[str, str]:
    """The keys that are next to each key."""
    found: dict[str, str] = {}
    for number, row in enumerate(_ROWS):
        for at, key in enumerate(row):
            above = _ROWS[number - 1][at : at + 2] if number > 1 else ""
            under = _ROWS[number + 1][max(0, at - 1) : at + 1] if number and number + 1 < len(_ROWS) else ""
            found[key] = row[max(0, at - 1) : at] + row[at + 1 : at + 2] + above + under
    return found
