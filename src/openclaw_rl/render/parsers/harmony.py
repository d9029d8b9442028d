"""gpt-oss' answers (harmony): messages in channels, <|channel|>analysis<|message|>...<|end|>, calls to=functions.x."""

from __future__ import annotations

import re
from enum import Enum, auto

from openclaw_rl.render.parsers.marked import half_mark
from openclaw_rl.render.parsers.reply import Reply

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
END, RETURN, CALL = "<|end|>", "<|return|>", "<|call|>"
_ENDS = (END, RETURN, CALL)
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"to=(?:functions\.)?([^\s<]+)")
_BEGINNINGS = ("assistant", "to=", CHANNEL, CONSTRAIN, MESSAGE)
_HEADER_CHARS = 400  # no header is longer


class _Into(Enum):
    HEADER = auto()
    REASONING = auto()
    TEXT = auto()
    CALL = auto()
    NOTHING = auto()  # between two messages


class HarmonyFormat:
    """Analysis is thinking, a message to a recipient is a call with its text as arguments, all else is text.

    A prompt ends with <|start|>assistant, so an answer begins within a header. What is not a header is text.
    """

    def __init__(self, reply: Reply) -> None:
        self.marks = frozenset({START, CHANNEL, CONSTRAIN, MESSAGE, *_ENDS})
        self.undecided: frozenset[str] | None = None  # the kind of a message's text depends on its channel
        self._reply = reply
        self._into = _Into.HEADER
        self._start = ""  # the mark in front of the open header

    def read(self, held: str, *, is_over: bool) -> int:
        """The number of decided characters."""
        at = 0
        while at < len(held) or (is_over and self._into is _Into.HEADER and self._start):
            before = (self._into, at, self._start)
            at += self._step(held[at:], is_over)
            if (self._into, at, self._start) == before:
                break
        return at

    def _step(self, held: str, is_over: bool) -> int:
        if self._into is _Into.HEADER:
            return self._read_header(held, is_over)
        if self._into is _Into.NOTHING:
            return self._read_between(held, is_over)
        return self._read_message(held, is_over)

    def _read_header(self, held: str, is_over: bool) -> int:
        if self._is_header(held):
            header, mark, _ = held.partition(MESSAGE)
            if mark:
                self._begin(header, len(header) + len(mark))
                return len(header) + len(mark)
            ended = min((held.find(end) for end in (*_ENDS, START) if end in held), default=-1)
            if ended < 0 and not is_over and len(held) < _HEADER_CHARS:
                return 0
            held = held if ended < 0 else held[:ended]
        else:
            held = held[: len(held) if is_over else len(held) - half_mark(held, (START, CHANNEL, *_ENDS))]
            other = min((held.find(mark) for mark in (START, CHANNEL, *_ENDS) if mark in held), default=len(held))
            held = held[:other]
        start, self._start = self._start, ""
        self._into = _Into.TEXT
        self._reply.say(start + held)
        return len(held)

    def _is_header(self, held: str) -> bool:
        start = held.lstrip()
        return any(start.startswith(word) or word.startswith(start) for word in _BEGINNINGS)

    def _begin(self, header: str, length: int) -> None:
        channel, recipient = _CHANNEL.search(header), _RECIPIENT.search(header)
        self._reply.mark(len(self._start) + length)
        self._start = ""
        if recipient is not None and recipient.group(1) != "assistant":
            self._into = _Into.CALL
            self._reply.call(recipient.group(1))
            return
        self._into = _Into.REASONING if channel is not None and channel.group(1) == "analysis" else _Into.TEXT
        self._reply.part(is_thinking=self._into is _Into.REASONING)

    def _read_message(self, held: str, is_over: bool) -> int:
        marks = (*_ENDS, START, CHANNEL)
        at, mark = min(((found, mark) for mark in marks if (found := held.find(mark)) >= 0), default=(-1, ""))
        ready = at if at >= 0 else len(held) if is_over else len(held) - half_mark(held, marks)
        if self._into is _Into.REASONING:
            self._reply.think(held[:ready])
        elif self._into is _Into.CALL:
            self._reply.body(ready)
            self._reply.argue(held[:ready])
        else:
            self._reply.say(held[:ready])
        if at < 0:
            return ready
        if mark in _ENDS:
            if self._into is _Into.CALL:
                self._reply.end_call()
            self._reply.mark(len(mark))
            self._into = _Into.NOTHING
            return at + len(mark)
        self._into = _Into.HEADER
        self._start = START if mark == START else ""
        return at + len(self._start)

    def _read_between(self, held: str, is_over: bool) -> int:
        if held.startswith(START):
            self._into, self._start = _Into.HEADER, START
            return len(START)
        if held.startswith(CHANNEL):  # a header whose start mark is missing
            self._into = _Into.HEADER
            return 0
        if not is_over and any(mark.startswith(held) for mark in (START, CHANNEL)):
            return 0
        self._into = _Into.TEXT
        return 0
