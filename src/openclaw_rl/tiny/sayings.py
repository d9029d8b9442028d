"""Whole messages that follow a reply: wishes, remarks and hard cases, in one file for each language in `wordings/`.

The grammar (tiny/wordings.py) makes very many messages from few parts; here each message is written out.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from random import Random

from openclaw_rl.tiny import wordings
from openclaw_rl.tiny.wordings import Wording, parts, table

OTHERS = {"other": -1, "plus": 1, "zero": 0, "minus": -1}  # messages without a known wish: their scores by kind
_QUOTES = (*((('"', '"'),) * 5), ("'", "'"), ("“", "”"), ("“", "”"), ("„", "“"), ("«", "»"), *((("", ""),) * 6))
_LITERAL = {"{x}": "\x01", "{n}": "\x02", "{l}": "\x03"}


def saying(rng: Random, code: str, *, wish: str) -> Wording:
    """A message with the wish."""
    return said(rng, code, rng.choice(_messages(code, wish)), wish=wish)


def said(rng: Random, code: str, text: str, *, wish: str) -> Wording:
    """The message as it is typed, with a literal in the place of `{x}`, `{n}` or `{l}`."""
    mark = next((mark for mark in _LITERAL if mark in text), "")
    language = parts(code).language
    opens = closes = literal = written = ""
    if mark == "{x}":
        literal = written = phrase(rng)
        opens, closes = rng.choice(_QUOTES)
        if not opens:
            literal = written = literal.rstrip("!?.:,")
    elif mark == "{n}":
        literal = written = called(rng)
    elif mark == "{l}":
        literal, written = wordings.language_named(language, rng)
        written = written.lower() if rng.random() < 0.25 else written
    text = _cased(rng, text.replace(mark, _LITERAL[mark]) if mark else text)
    at = text.find(_LITERAL[mark]) + len(opens) if mark else -1
    text = text.replace(_LITERAL[mark], f"{opens}{written}{closes}") if mark else text
    return Wording(text, language, "whole", wish, literal, at, written)


def other_saying(rng: Random, code: str) -> tuple[str, str]:
    """A message with none of the known wishes, and its kind in `OTHERS`; kinds with more messages come more often."""
    about = rng.choices(tuple(OTHERS), weights=[len(_messages(code, name)) for name in OTHERS])[0]
    return other_said(rng, rng.choice(_messages(code, about))), about


def other_said(rng: Random, text: str) -> str:
    """The message without a known wish as it is typed."""
    for mark, made in (("{x}", phrase), ("{n}", called)):
        text = text.replace(mark, made(rng)) if mark in text else text
    return _cased(rng, text)


def phrase(rng: Random) -> str:
    """Words to begin or to end a reply with: half of them the grammar's, half from the list of literals."""
    if rng.random() < 0.5:
        return wordings.phrase(rng)
    known = _literals()
    form = rng.random()
    said = rng.choice(known["phrases"])
    if form < 0.25:
        said = f"{said}, {rng.choice(known['addressed'])}"
    elif form < 0.4:
        said = f"{said} {rng.choice(known['words'])}"
    elif form < 0.5:
        said = f"{rng.choice(known['words'])} {rng.choice(known['words'])}"
    how = rng.random()
    said = said[:1].upper() + said[1:] if how < 0.7 else said.title() if how < 0.75 else said
    return said + rng.choice(("", "", "", "", "", "!", ".", "?", "...", ":", ","))


def called(rng: Random) -> str:
    """What a user wants to be called."""
    if rng.random() < 0.35:
        return wordings.name(rng)
    known, form = _literals(), rng.random()
    first, last = rng.choice(known["first"]), rng.choice(known["last"])
    if form < 0.45:
        made = first
    elif form < 0.6:
        made = f"{first} {last}"
    elif form < 0.78:
        made = f"{rng.choice(known['titles'])} {last if rng.random() < 0.7 else first}"
    elif form < 0.92:
        made = rng.choice(known["nicknames"])
    else:
        made = f"{rng.choice(known['before'])} {rng.choice(known['words']).capitalize()}"
    return made.lower() if rng.random() < 0.12 else made


@lru_cache
def _literals() -> Mapping[str, list[str]]:
    return table("literals")  # type: ignore[return-value]


@lru_cache
def _messages(code: str, about: str) -> list[str]:
    listed = table(f"said_{code}").get(about, [])
    assert isinstance(listed, list)
    return listed


def _cased(rng: Random, text: str) -> str:
    """The text as people type it: in small letters or in capitals, with or without punctuation at its end."""
    form = rng.random()
    if form < 0.08:
        text = text.upper()
    elif form < 0.3:
        text = text.lower()
    elif form < 0.9:
        text = text[:1].upper() + text[1:]
    if text[-1:].isalnum() and rng.random() < 0.6:
        text += rng.choice((".", ".", ".", "!", "...", "!!", "?", " :)"))
    elif text[-1:] in ".!" and rng.random() < 0.4:
        text = text[:-1]
    return text
