"""Rules about words, as data: one file per language in `languages/`, read once, when first needed.

A rule applies to the words of all languages, since a short text seldom shows its language. Words that no file knows are
left to what the model says: an unknown word always counts as one that says something.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

CODES = ("en", "de", "fr", "es", "it", "pt", "zh", "ja")
# Scripts without spaces between words: each letter counts as a word, and as four letters of others.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_KANA = re.compile("[\u3040-\u30ff]")
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
_HANGUL = re.compile("[\uac00-\ud7af]")
_LETTER = re.compile(f"[{_UNSPACED}]")
# Marks on letters (Latin, Arabic, Indic) belong to their word.
_WORD = re.compile(f"[{_UNSPACED}]|(?:(?![{_UNSPACED}])[\\w\u0300-\u036f\u0610-\u061a\u064b-\u065f\u0900-\u0dff])+")
_LETTERS_EACH, _HANGUL_EACH = 4, 3


@dataclass(frozen=True, slots=True)
class Language:
    """One language's file. Lists of words are one text; patterns are regular expressions."""

    name: str
    capitals: str  # what a capital within a sentence marks: "names", "nouns", or "" if there are none
    common: str
    forbids: str
    idle: str
    blame: str
    measures: str
    numbers: Mapping[str, int]
    where: list[str]
    known: str
    literal: list[str]
    forwarded: list[str]
    wrote: list[str]
    from_: list[str]
    headers: list[str]
    begin: list[str]
    end: list[str]
    addresses: list[str]
    languages: Mapping[str, list[str]]


@lru_cache
def language(code: str) -> Language:
    """The rules of a language that has a file."""
    held = tomllib.loads(files("openclaw_rl.wording").joinpath("languages", f"{code}.toml").read_text("utf-8"))
    return Language(**{"from_" if name == "from" else name: value for name, value in held.items()})


@lru_cache
def patterns(kind: str) -> tuple[re.Pattern[str], ...]:
    """The expressions of all languages for `where` or `literal`."""
    held = [language(code) for code in CODES]
    found = [pattern for each in held for pattern in (each.where if kind == "where" else each.literal)]
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in found)


def words_in(text: str) -> list[str]:
    """The words of a text, in lower case; a letter each in scripts without spaces."""
    return _WORD.findall(text.casefold())


def length(text: str) -> int:
    """How long a text is, in letters of an alphabet: one of a script of syllables or words counts as several."""
    wide, syllables = len(_LETTER.findall(text)), len(_HANGUL.findall(text))
    return len(text) + (_LETTERS_EACH - 1) * wide + (_HANGUL_EACH - 1) * syllables


def telling(text: str, *without: str) -> set[str]:
    """The words of a text that are on none of the named lists: forbids, idle, blame, measures."""
    lowered = text.casefold()
    for listed in without:
        phrases = _phrases(listed)
        lowered = phrases.sub(" ", lowered) if phrases else lowered
    found = set(_WORD.findall(lowered))
    return found.difference(*(_words(listed) for listed in without))


def holds(text: str, listed: str) -> bool:
    """Whether a word of a list is in a text."""
    phrases = _phrases(listed)
    return bool(_words(listed) & set(words_in(text))) or bool(phrases and phrases.search(text.casefold()))


def starts_with(text: str, listed: str) -> bool:
    """Whether a text begins with a word of a list; in scripts without spaces, with its letters."""
    lowered = text.casefold().lstrip()
    phrases = _phrases(listed)
    first = next(iter(words_in(lowered)), "")
    return first in _words(listed) or bool(phrases and phrases.match(lowered))


def language_of(text: str) -> str | None:
    """The code of the language a text is in, by its script or its commonest words; None if no file matches."""
    if _KANA.search(text):
        return "ja"
    if _HAN.search(text):
        return "zh"
    said = words_in(text)
    counts = {code: sum(word in _common(code) for word in said) for code in CODES}
    best = max(counts, key=lambda code: counts[code])
    is_alone = [code for code in CODES if counts[code] == counts[best]] == [best]
    return best if counts[best] and is_alone else None


def number_words(text: str) -> set[int]:
    """The numbers that a text spells out, in any of the languages."""
    named = {word: value for code in CODES for word, value in language(code).numbers.items()}
    return {named[word] for word in words_in(text) if word in named}


def languages_named(text: str) -> set[str]:
    """The languages that a text names, by their codes."""
    lowered = text.casefold()
    said = set(words_in(lowered))
    return {
        named
        for code in CODES
        for named, words in language(code).languages.items()
        if any(word in said or (_LETTER.search(word) and word in lowered) for word in words)
    }


def plain(text: str) -> str:
    """A text normalised for comparison: case, width, kind of quotation marks, spaces and final points do not count."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    folded = re.sub("[\"'`´‘’‚‛“”„‟«»‹›「」『』]", "", folded)
    return re.sub(r"\s+", " ", folded).strip(" .,:;!?…。！？、")


@lru_cache
def _common(code: str) -> frozenset[str]:
    return frozenset(language(code).common.split())


@lru_cache
def _all(listed: str) -> frozenset[str]:
    lists = {
        "forbids": lambda held: held.forbids,
        "idle": lambda held: held.idle,
        "blame": lambda held: held.blame,
        "measures": lambda held: held.measures,
        "known": lambda held: held.known,
    }
    return frozenset(word for code in CODES for word in str(lists[listed](language(code))).split())


@lru_cache
def _words(listed: str) -> frozenset[str]:
    return frozenset(word for word in _all(listed) if not _LETTER.search(word))


@lru_cache
def _phrases(listed: str) -> re.Pattern[str] | None:
    """The list's entries in scripts without spaces, the longest first."""
    found = sorted((word for word in _all(listed) if _LETTER.search(word)), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, found))) if found else None
