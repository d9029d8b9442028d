"""Hermes-style ChatML answers (Qwen and many others): <think>...</think>, text, <tool_call>{json}</tool_call>."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from openclaw_rl.core.completion import Span, SpanKind
from openclaw_rl.core.message import Message, Role, TextPart, ToolCall
from openclaw_rl.render.detokenise import Detokeniser, TokenBytes
from openclaw_rl.render.parsers.calls import CallBody
from openclaw_rl.render.parsers.deltas import ReasoningDelta, ReplyDelta, TextDelta
from openclaw_rl.render.parsers.regions import Regions

THINK, END_THINK = "<think>", "</think>"
CALL, END_CALL = "<tool_call>", "</tool_call>"
_MARKS = frozenset({THINK, END_THINK, CALL, END_CALL})


class _State(Enum):
    TEXT = auto()
    REASONING = auto()
    CALL = auto()


class HermesParser:
    """Marks are found in the text, so it does not matter whether a tokenizer has one id for them.

    New lines that only set marks apart belong to the format and are left out. A call that is no call is given as text.
    """

    def __init__(self, table: TokenBytes, *, is_thinking: bool = False, call_prefix: str = "call_") -> None:
        self._special = frozenset(token for token in table.special if table(token).decode() not in _MARKS)
        self._detokeniser = Detokeniser(table)
        self._regions = Regions()
        self._state = _State.REASONING if is_thinking else _State.TEXT
        self._skips_lines = is_thinking  # new lines right behind a mark
        self._held = ""  # text not yet decided
        self._reasoning: list[str] = []
        self._text: list[str] = []
        self._has_reasoned = is_thinking
        self._has_spoken = False
        self._calls: list[ToolCall] = []
        self._body: CallBody | None = None
        self._lines_before = ""  # new lines in front of the open call, given back where it turns out to be text
        self._call_prefix = call_prefix
        self.calls_ended = 0

    def feed(self, tokens: Sequence[int]) -> list[ReplyDelta]:
        """What these ids add, each id by itself."""
        found: list[ReplyDelta] = []
        for token in tokens:
            if token in self._special:
                text = self._detokeniser.flush()
                self._regions.special(text)
            else:
                text = self._detokeniser.feed(token)
                self._regions.token(text)
            if text:
                self._held += text
                found.extend(self._read())
        return found

    def finish(self) -> list[ReplyDelta]:
        """What was held back: a broken character, half a mark, an unfinished call."""
        text = self._detokeniser.flush()
        self._regions.leftover(text)
        self._held += text
        found = self._read()
        rest, self._held = self._held, ""
        if self._state is _State.CALL:
            found.extend(self._body_more(rest))
            found.extend(self._end_call(""))
        elif self._state is _State.REASONING:
            found.extend(self._think(rest))
        else:
            found.extend(self._say(rest))
        return found

    def message(self) -> Message:
        """The reply as an assistant's message."""
        text = "".join(self._text)
        calls = list(self._calls)
        if self._body is not None and (open_call := self._body.call()) is not None:
            calls.append(open_call)
        return Message(
            Role.ASSISTANT,
            (TextPart(text),) if text else (),
            reasoning="".join(self._reasoning) or None,
            tool_calls=tuple(calls),
        )

    def spans(self) -> tuple[Span, ...]:
        """Reasoning, text, calls and marks."""
        return self._regions.spans()

    def _read(self) -> list[ReplyDelta]:
        found: list[ReplyDelta] = []
        while self._held:
            before = (self._state, len(self._held))
            if self._skips_lines:
                self._skip_lines()
            if self._state is _State.REASONING:
                found.extend(self._read_reasoning())
            elif self._state is _State.CALL:
                found.extend(self._read_call())
            else:
                found.extend(self._read_text())
            if (self._state, len(self._held)) == before:
                break
        return found

    def _skip_lines(self) -> None:
        rest = self._held.lstrip("\n")
        self._regions.settle(SpanKind.MARK, len(self._held) - len(rest))
        self._held = rest
        self._skips_lines = not rest

    def _read_reasoning(self) -> list[ReplyDelta]:
        thought, mark, rest = self._held.partition(END_THINK)
        if mark:
            kept = thought.rstrip("\n")
            found = self._think(kept)
            self._regions.settle(SpanKind.MARK, len(thought) - len(kept) + len(mark))
            self._held, self._state, self._skips_lines = rest, _State.TEXT, True
            return found
        ready = _before_mark(self._held, END_THINK)
        found = self._think(self._held[:ready])
        self._held = self._held[ready:]
        return found

    def _read_text(self) -> list[ReplyDelta]:
        if not self._has_spoken and not self._has_reasoned:
            start = self._held.lstrip()
            if start.startswith(THINK):
                self._regions.settle(SpanKind.MARK, len(self._held) - len(start) + len(THINK))
                self._held = start.removeprefix(THINK)
                self._state, self._skips_lines, self._has_reasoned = _State.REASONING, True, True
                return []
            if THINK.startswith(start):  # nothing, white space, or half the mark
                return []
        said, mark, rest = self._held.partition(CALL)
        if mark:
            kept = said.rstrip("\n")
            found = self._say(kept)
            self._lines_before = said[len(kept) :]
            self._held, self._state = rest, _State.CALL
            index = len(self._calls)
            self._body = CallBody(index, f"{self._call_prefix}{index}")
            return found
        ready = _before_mark(self._held, CALL)
        found = self._say(self._held[:ready])
        self._held = self._held[ready:]
        return found

    def _read_call(self) -> list[ReplyDelta]:
        body, mark, rest = self._held.partition(END_CALL)
        if mark:
            found = self._body_more(body)
            found.extend(self._end_call(mark))
            self._held = rest
            return found
        ready = len(body) - _overlap(body, END_CALL)
        self._held = body[ready:]
        return self._body_more(body[:ready])

    def _body_more(self, text: str) -> list[ReplyDelta]:
        return [] if self._body is None or not text else self._body.feed(text)

    def _end_call(self, mark: str) -> list[ReplyDelta]:
        """Closes the open call; `mark` is empty where the answer ended inside it."""
        body, self._body = self._body, None
        self._state = _State.TEXT
        if body is None:
            return []
        found = body.close()
        call = body.call()
        if found is None or call is None:
            return self._say(f"{self._lines_before}{CALL}{body.raw}{mark}")
        self._regions.settle(SpanKind.MARK, len(self._lines_before) + len(CALL))
        self._regions.settle(SpanKind.TOOL_CALL, len(body.raw))
        self._regions.settle(SpanKind.MARK, len(mark))
        self._calls.append(call)
        self._skips_lines = True
        self.calls_ended += bool(mark)
        return found

    def _think(self, text: str) -> list[ReplyDelta]:
        if not text:
            return []
        self._regions.settle(SpanKind.REASONING, len(text))
        self._reasoning.append(text)
        return [ReasoningDelta(text)]

    def _say(self, text: str) -> list[ReplyDelta]:
        if not text:
            return []
        self._has_spoken = True
        self._regions.settle(SpanKind.TEXT, len(text))
        self._text.append(text)
        return [TextDelta(text)]


def _before_mark(text: str, mark: str) -> int:
    """How much of the text cannot belong to a coming mark or to the new lines in front of one."""
    end = len(text) - _overlap(text, mark)
    return len(text[:end].rstrip("\n"))


def _overlap(text: str, mark: str) -> int:
    """How many characters at the end of the text begin the mark."""
    at = text.rfind("<", max(0, len(text) - len(mark) + 1))
    return len(text) - at if at >= 0 and mark.startswith(text[at:]) else 0
