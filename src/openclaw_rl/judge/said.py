"""Whether a hint says only what the user said: what it quotes, counts or names must stand in their words.

A judge that misheard often makes up a literal ("begin with ..."), and however many of its votes agree on it, the user
never said so. What cannot be compared, since no file knows the language or the script is another, is believed.
"""

from __future__ import annotations

import re

from openclaw_rl.wording.words import language, language_of, languages_named, number_words, patterns, plain, telling

_QUOTED = re.compile(
    '"([^"]+)"|“([^”“]+)[”“]|„([^“”]+)[“”]|«([^»]+)»|‹([^›]+)›|「([^」]+)」|『([^』]+)』|‘([^’]+)’(?!\\w)|`([^`]+)`'
    "|(?<!\\w)'([^']+)'(?!\\w)"
)
_NUMBER = re.compile(r"\d+")
_NAME = re.compile(r"(?<=[^.!?:\n\"“„«] )[A-ZÀ-ÖØ-Þ][a-zß-öø-ÿ]+\b")
_LATIN = re.compile("[A-Za-zÀ-ÖØ-öø-ÿ]")


def is_said(hint: str, said: str, *, asked: str = "") -> bool:
    """Whether all literal text in a hint is the user's.

    Quoted words must stand in what they `said` to the reply; numbers and names may also stand in what they `asked`
    before. Case, spaces and the kind of quotation marks do not count.
    """
    return (
        _are_quotes_said(hint, plain(said))
        and _are_numbers_said(hint, said, asked)
        and _are_names_said(hint, said, asked)
        and _are_languages_said(hint, said, asked)
    )


def _are_quotes_said(hint: str, said: str) -> bool:
    quoted = [next(part for part in found.groups() if part) for found in _QUOTED.finditer(hint)]
    bare = [] if quoted else [found["x"] for pattern in patterns("literal") for found in pattern.finditer(hint)]
    # "with a short summary" describes; "with Good morning" is to be written as it stands.
    literal = [text for text in bare if text[:1].isupper() or text.rstrip().endswith(("!", "?"))]
    return all(plain(text) in said for text in (*quoted, *literal))


def _are_numbers_said(hint: str, said: str, asked: str) -> bool:
    counted = {int(number) for number in _NUMBER.findall(hint)}
    if not counted:
        return True
    known = {int(number) for number in _NUMBER.findall(f"{said} {asked}")} | number_words(f"{said} {asked}")
    return counted <= known or (language_of(said) is None and not _NUMBER.search(said))


def _are_names_said(hint: str, said: str, asked: str) -> bool:
    """A capital within a sentence marks a name where not all nouns have one; told only where both write in Latin."""
    spoken = language_of(hint)
    if spoken is None or language(spoken).capitals != "names" or not _LATIN.search(said):
        return True
    names = telling(" ".join(_NAME.findall(_QUOTED.sub(" ", hint))), "known", "idle", "blame", "forbids")
    heard = plain(f"{said} {asked}")
    return all(name in heard for name in names)


def _are_languages_said(hint: str, said: str, asked: str) -> bool:
    """A language that the hint asks for is one the user named, or wrote in."""
    wished, heard = languages_named(hint), languages_named(f"{said} {asked}")
    spoken = language_of(said)
    return not wished or wished <= heard | {spoken} or (not heard and spoken is None)
