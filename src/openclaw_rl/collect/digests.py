"""Digests by which an earlier text is recognised: of it, of its lines, of its beginning, of its form; and those of
messages that were answered and then left out.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Iterator

from openclaw_rl.core.hashing import hashed
from openclaw_rl.core.message import Json
from openclaw_rl.core.turn import Turn

MOST_LINES = 60  # of a text
MOST_LETTERS = 40_000  # of a text that is searched
LONG_ARGUMENT = 24
RECURRING, OPENING = 200, 100  # letters of a text, and of its beginning, that recur
SPOKEN = 16  # letters of a text that is not said twice by accident
NUMBERED_FORM = 60  # letters of a text of several lines that recurs with other numbers in it
LONG_OPENING = 40  # letters of a first line that says what a text is
MOST_BRANCHES = 20_000  # turns, and digests, of the messages that were left out
MOST_AFTER = 64  # digests of messages that followed one turn: it may be asked again any number of times
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
    return hashed((f"{space}:{text}",), size=12)


class Branches:
    """Messages that were answered and then left out: their conversation continued as if they had not been sent.

    In this way a client asks for a title or for suggestions after a whole history. Digests of such messages are kept in
    memory, since the start. A message from which any conversation continued is not such a message. One object for all
    requests, on one event loop.
    """

    def __init__(self, *, most: int = MOST_BRANCHES) -> None:
        self._most = most
        self._turns: OrderedDict[str, tuple[str, tuple[str, ...]]] = OrderedDict()  # the turn before, and its message
        self._after: OrderedDict[str, list[str]] = OrderedDict()  # a turn to the messages that followed it
        self._abandoned: OrderedDict[str, None] = OrderedDict()
        self._kept: OrderedDict[str, None] = OrderedDict()

    @property
    def held(self) -> int:
        """How many digests and turns are in memory."""
        return len(self._turns) + len(self._after) + len(self._abandoned) + len(self._kept)

    def let_go(self) -> None:
        """Removes everything from memory."""
        for held in (self._turns, self._after, self._abandoned, self._kept):
            held.clear()

    def enter(self, turn: Turn, message: tuple[str, ...]) -> None:
        """Records an answered request and digests of its newest message; none for one that says little."""
        if turn.parent is None:
            return
        self._turns[turn.id] = (turn.parent, message)
        self._after[turn.parent] = [*self._after.get(turn.parent, ()), *message][-MOST_AFTER:]
        self._after.move_to_end(turn.parent)
        self._bound()

    def goes_on(self, turn: str) -> None:
        """Records that a conversation continued from a turn: other messages after the turn before were left out."""
        parent, message = self._turns.get(turn, ("", ()))
        if not parent:
            return
        for each in message:
            self._kept[each] = None
            self._abandoned.pop(each, None)
        self._abandoned |= dict.fromkeys(each for each in self._after.get(parent, ()) if each not in self._kept)
        self._bound()

    def is_abandoned(self, message: str) -> bool:
        """Whether such a message was left out before."""
        return message in self._abandoned

    def _bound(self) -> None:
        for held in (self._turns, self._after, self._abandoned, self._kept):
            while len(held) > self._most:
                held.popitem(last=False)
