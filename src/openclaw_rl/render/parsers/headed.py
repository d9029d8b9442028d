"""Calls written as a header that names the function, and an object of arguments behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from openclaw_rl.render.parsers.objects import Braces
from openclaw_rl.render.parsers.reply import Reply

_HEADER_CHARS = 1000


@dataclass(frozen=True, slots=True)
class Header:
    """What a header tells, and how long it is; the arguments' brace follows."""

    name: str
    length: int
    id: str | None = None


class HeadedCall:
    """One such call. With `ends_itself` it is over with the last brace; else all up to the closing mark is its own."""

    def __init__(self, reply: Reply, header: Callable[[str], Header | None], *, ends_itself: bool = False) -> None:
        self.raw = ""
        self._reply = reply
        self._header = header
        self._ends_itself = ends_itself
        self._braces = Braces()
        self._is_call = False

    @property
    def is_over(self) -> bool:
        """Whether the arguments are complete and nothing else belongs to the call."""
        return self._ends_itself and self._braces.is_complete

    def feed(self, text: str) -> int:
        """How many characters belong to it."""
        fresh = text
        if not self._is_call:
            self.raw += text
            found = self._header(self.raw) if len(self.raw) - len(text) < _HEADER_CHARS else None
            if found is None:
                return len(text)
            self._is_call = True
            self._reply.call(found.name, found.id)
            self.raw, fresh = self.raw[: found.length], self.raw[found.length :]
        used = self._braces.feed(fresh)
        self._reply.argue(fresh[:used])
        if self._ends_itself:
            self.raw += fresh[:used]
            if self._braces.is_complete:
                self._reply.end_call()
            return len(text) - (len(fresh) - used)
        self.raw += fresh
        return len(text)

    def close(self, *, is_whole: bool) -> str | None:
        """Nothing is left over of a call; None where it is none."""
        return "" if self._is_call else None
