"""Calls written as a header that names the function, then an object of arguments: DeepSeek's and Kimi's."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from openclaw_rl.render.parsers.marked import MarkedFormat, Marks
from openclaw_rl.render.parsers.objects import Braces
from openclaw_rl.render.parsers.reply import Reply

_HEADER_CHARS = 1000

_SEPARATOR = "<｜tool▁sep｜>"
_DEEPSEEK = Marks(
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    aside=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    inside=(_SEPARATOR,),
)
_FENCED = re.compile(rf"\s*function{_SEPARATOR}([^\n<]*[^\s<])\s*\n```json\s*(?=\{{)")  # V3 and R1
_BARE = re.compile(rf"\s*([^\s<](?:[^\n<]*[^\s<])?)\s*{_SEPARATOR}\s*(?=\{{)")  # V3.1

_ARGUMENTS = "<|tool_call_argument_begin|>"
_KIMI = Marks(
    "<|tool_call_begin|>",
    "<|tool_call_end|>",
    aside=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    inside=(_ARGUMENTS,),
)
_KIMI_HEADER = re.compile(rf"\s*((?:functions\.)?([^\s<]+?):\d+)\s*{re.escape(_ARGUMENTS)}\s*(?=\{{)")


def deepseek(reply: Reply, *, is_thinking: bool) -> MarkedFormat:
    """DeepSeek (V3, R1, V3.1): calls between their own marks, with or without a fence around the arguments."""
    return MarkedFormat(_DEEPSEEK, reply, lambda: HeadedCall(reply, _deepseek_header), is_thinking=is_thinking)


def kimi(reply: Reply, *, is_thinking: bool) -> MarkedFormat:
    """Kimi K2: calls in a separate section, each with its id `functions.name:index`.

    Calls keep the ids that were sampled: results refer to them.
    """
    return MarkedFormat(_KIMI, reply, lambda: HeadedCall(reply, _kimi_header), is_thinking=is_thinking)


@dataclass(frozen=True, slots=True)
class Header:
    """The content of a header and its length; the arguments' brace follows."""

    name: str
    length: int
    id: str | None = None


class HeadedCall:
    """One such call. With `ends_itself` it ends with the last brace; else it extends to the closing mark."""

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
        """The number of its characters."""
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
        """Empty: a call leaves no rest; None if it is not a call."""
        return "" if self._is_call else None


def _deepseek_header(raw: str) -> Header | None:
    found = _FENCED.match(raw) or _BARE.match(raw)
    return None if found is None else Header(found.group(1), found.end())


def _kimi_header(raw: str) -> Header | None:
    found = _KIMI_HEADER.match(raw)
    return None if found is None else Header(found.group(2), found.end(), found.group(1))
