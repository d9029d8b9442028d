"""Answers of thinking, text, and calls between marks, as in most families."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from typing import Protocol

from openclaw_rl.render.parsers.reply import Reply

THINK, END_THINK = "<think>", "</think>"


class Body(Protocol):
    """The text after the mark that begins a call."""

    raw: str  # all that was read

    @property
    def is_over(self) -> bool:
        """Whether it is complete."""

    def feed(self, text: str) -> int:
        """The number of its characters; fewer than given only if it is complete."""

    def close(self, *, is_whole: bool) -> str | None:
        """The end of `raw` that is not part of a call; None if there is no call."""


@dataclass(frozen=True)
class Marks:
    """The marks of one family.

    `closes` is empty if calls end by themselves; `aside` only separate calls; with `is_bare` an answer may begin
    with a call's brace and no mark.
    """

    opens: str
    closes: str = ""
    aside: tuple[str, ...] = ()
    think: str = THINK
    end_think: str = END_THINK
    inside: tuple[str, ...] = ()  # marks within a call
    is_bare: bool = False

    @cached_property
    def all(self) -> frozenset[str]:
        """Every mark."""
        return frozenset(
            mark for mark in (self.opens, self.closes, self.think, self.end_think, *self.aside, *self.inside) if mark
        )

    @cached_property
    def undecided(self) -> frozenset[str]:
        """The beginnings of marks in the middle of text, with the new lines that may precede them."""
        return frozenset("\n").union(mark[0] for mark in (self.opens, *self.aside))


class _State(Enum):
    TEXT = auto()
    REASONING = auto()
    CALL = auto()


class MarkedFormat:
    """New lines that only separate marks belong to the format and are left out. An invalid call is text."""

    def __init__(self, marks: Marks, reply: Reply, body: Callable[[], Body], *, is_thinking: bool = False) -> None:
        self.marks = marks.all
        self.undecided: frozenset[str] | None = None
        self._marks = marks
        self._reply = reply
        self._new_body = body
        self._body: Body | None = None
        self._state = _State.REASONING if is_thinking else _State.TEXT
        self._has_thought = is_thinking
        self._skips_lines = is_thinking  # new lines right after a mark
        self._before = ""  # the text before the open call, restored if the call turns out to be text

    def read(self, held: str, *, is_over: bool) -> int:
        """The number of decided characters."""
        at = 0
        while at < len(held) or (is_over and self._state is _State.CALL):
            before = (self._state, at)
            at += self._step(held[at:], is_over)
            if (self._state, at) == before:
                break
        is_in_text = self._state is _State.TEXT and not self._skips_lines
        is_past_start = self._reply.has_spoken or self._has_thought
        self.undecided = self._marks.undecided if is_in_text and is_past_start else None
        return at

    def _step(self, held: str, is_over: bool) -> int:
        if self._skips_lines:
            lines = len(held) - len(held.lstrip("\n"))
            self._reply.mark(lines)
            self._skips_lines = lines == len(held)
            if lines:
                return lines
        if self._state is _State.REASONING:
            return self._read_reasoning(held, is_over)
        if self._state is _State.CALL:
            return self._read_call(held, is_over)
        if not self._reply.has_spoken and not self._has_thought:
            used = self._read_start(held, is_over)
            if used is not None:
                return used
        return self._read_text(held, is_over)

    def _read_start(self, held: str, is_over: bool) -> int | None:
        """Thinking, or a call without a mark, at the very beginning; None if there is neither."""
        start = held.lstrip()
        lead = len(held) - len(start)
        if start.startswith(self._marks.think):
            length = lead + len(self._marks.think)
            self._reply.mark(length)
            self._state, self._skips_lines, self._has_thought = _State.REASONING, True, True
            return length
        if self._marks.think.startswith(start) and not is_over:  # nothing, white space, or half the mark
            return 0
        if self._marks.is_bare and start.startswith("{") and not self._reply.calls:
            self._open(held[:lead])
            return lead
        return None

    def _read_reasoning(self, held: str, is_over: bool) -> int:
        thought, mark, _ = held.partition(self._marks.end_think)
        if mark:
            kept = thought.rstrip("\n")
            self._reply.think(kept)
            self._reply.mark(len(thought) - len(kept) + len(mark))
            self._state, self._skips_lines = _State.TEXT, True
            return len(thought) + len(mark)
        ready = len(held) if is_over else before_marks(held, (self._marks.end_think,))
        self._reply.think(held[:ready])
        return ready

    def _read_text(self, held: str, is_over: bool) -> int:
        marks = (self._marks.opens, *self._marks.aside)
        at, mark = min(((found, mark) for mark in marks if (found := held.find(mark)) >= 0), default=(-1, ""))
        if at < 0:
            ready = len(held) if is_over else before_marks(held, marks)
            self._reply.say(held[:ready])
            return ready
        said = held[:at].rstrip("\n")
        self._reply.say(said)
        if mark in self._marks.aside:
            self._reply.mark(at - len(said) + len(mark))
            self._skips_lines = True
        else:
            self._open(held[len(said) : at] + mark)
        return at + len(mark)

    def _open(self, before: str) -> None:
        self._before, self._body, self._state = before, self._new_body(), _State.CALL

    def _read_call(self, held: str, is_over: bool) -> int:
        body = self._body
        assert body is not None
        if not self._marks.closes:
            used = body.feed(held)
            if body.is_over or is_over:
                self._close(body, "")
            return used
        inside, mark, _ = held.partition(self._marks.closes)
        if mark:
            body.feed(inside)
            self._close(body, mark)
            return len(inside) + len(mark)
        ready = len(held) if is_over else len(held) - half_mark(held, (self._marks.closes,))
        body.feed(held[:ready])
        if is_over:
            self._close(body, "")
        return ready

    def _close(self, body: Body, mark: str) -> None:
        """Ends the open call; `mark` is empty if it ended by itself, or the answer ended inside it."""
        left = body.close(is_whole=bool(mark) or body.is_over)
        self._body, self._state = None, _State.TEXT
        if left is None:
            self._reply.say(self._before + body.raw + mark)
            return
        self._reply.mark(len(self._before))
        self._reply.body(len(body.raw) - len(left))
        self._reply.say(left)
        self._reply.mark(len(mark))
        if mark:
            self._reply.end_call()
        self._skips_lines = True


def before_marks(text: str, marks: tuple[str, ...]) -> int:
    """The length of the text that cannot belong to a coming mark or to the new lines before one."""
    return len(text[: len(text) - half_mark(text, marks)].rstrip("\n"))


def half_mark(text: str, marks: tuple[str, ...]) -> int:
    """The number of characters at the end of the text that begin a mark; the most if there are several."""
    most = 0
    for mark in marks:
        at = text.find(mark[0], max(0, len(text) - len(mark) + 1))
        while at >= 0:
            if mark.startswith(text[at:]):
                most = max(most, len(text) - at)
                break
            at = text.find(mark[0], at + 1)
    return most
