"""Keys by which an earlier text is recognised: digests of it, of its lines, of its beginning, of its form."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator

from openclaw_rl.core.message import Json
from openclaw_rl.core.turn import Turn

MOST_LINES = 60  # of a text
MOST_LETTERS = 40_000  # of a text that is searched
LONG_ARGUMENT = 24
RECURRING, OPENING = 200, 100  # letters of a text, and of its beginning, that recur
SPOKEN = 16  # letters of a text that is not said twice by accident
NUMBERED_FORM = 60  # letters of a text of several lines that recurs with other numbers in it
LONG_OPENING = 40  # letters of a first line that says what a text is
_DIGITS = re.compile(r"\d+")


def lines_of(text: str) -> list[str]:
    """Its meaningful lines."""
    return [line.strip() for line in text[:MOST_LETTERS].split("\n") if len(line.strip()) > 1][:MOST_LINES]


def beginnings(space: str, text: str) -> tuple[str, ...]:
    """A text, and its first line if that is long and others follow: the parts of a prompt that change come last."""
    bare = text.strip()
    line, _, rest = bare.partition("\n")
    held = (
        f"asks {bare}" if len(bare) >= SPOKEN else "",
        f"asks {line}\n" if rest and len(line) >= LONG_OPENING else "",
    )
    return tuple(digest(space, each) for each in held if each)


def recurring(space: str, text: str) -> Iterator[str]:
    """Digests of a text that a program may send in several sessions: unchanged, its beginning, with other numbers."""
    bare = text.strip()
    if "\n" in bare and len(bare) >= NUMBERED_FORM:
        yield digest(space, f"form {_DIGITS.sub('0', bare)}")
    if len(bare) >= RECURRING:
        yield digest(space, bare)
        yield digest(space, f"begins {bare[:OPENING]}")


def arguments_of(turn: Turn) -> Iterator[str]:
    """The long texts in the calls of a reply."""
    for call in turn.reply.tool_calls:
        if len(call.arguments) > MOST_LETTERS:
            continue
        try:
            held: Json = json.loads(call.arguments or "{}")
        except (ValueError, RecursionError):
            continue
        for value in held.values() if isinstance(held, dict) else ():
            if isinstance(value, str) and len(value.strip()) >= LONG_ARGUMENT:
                yield value.strip()


def unescaped(text: str) -> str:
    """The first line of a text in an object."""
    try:
        return str(json.loads(f'"{text}"', strict=False)).partition("\n")[0].strip()
    except ValueError:
        return text


def digest(space: str, text: str) -> str:
    """A digest of a text for an API key."""
    return hashlib.blake2b(f"{space}:{text}".encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
