"""An answer read so far: the deltas of tokens, and the object that formats write to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from openclaw_rl.core.completion import Span, SpanKind
from openclaw_rl.core.message import Message, Role, TextPart, ToolCall


class ReasoningDelta(msgspec.Struct, frozen=True, gc=False):
    """More of the model's thinking."""

    text: str


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    """More of its text."""

    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A tool call begins."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """More of a tool call's arguments, as the model writes them."""

    index: int
    text: str


ReplyDelta = ReasoningDelta | TextDelta | CallDelta | ArgumentsDelta


class StreamParser(Protocol):
    """One answer, read as it is sampled. Feeding ids one by one or many at once gives the same deltas."""

    def feed(self, tokens: Sequence[int]) -> list[ReplyDelta]:
        """The deltas of these ids."""

    def finish(self) -> list[ReplyDelta]:
        """The deltas of text held back, when no more ids come."""

    def message(self) -> Message:
        """The reply so far; whole after `finish`."""

    def spans(self) -> tuple[Span, ...]:
        """The kinds of the ids fed, as spans that cover them all."""

    @property
    def calls_ended(self) -> int:
        """The number of complete tool calls."""


@dataclass(slots=True)
class _Call:
    id: str
    name: str
    arguments: list[str] = field(default_factory=list)


class Reply:
    """Formats call these in the order of the text. Every character is settled once, with its kind.

    Deltas are never withdrawn: `deltas` returns those since its last call.
    """

    def __init__(self, call_id: Callable[[int], str]) -> None:
        self.regions = Regions()
        self.calls_ended = 0
        self._call_id = call_id
        self._deltas: list[ReplyDelta] = []
        self._reasoning: list[str] = []
        self._text: list[str] = []
        self._calls: list[_Call] = []

    @property
    def has_spoken(self) -> bool:
        """Whether it contains any text."""
        return bool(self._text)

    @property
    def calls(self) -> int:
        """The number of calls begun."""
        return len(self._calls)

    def deltas(self) -> list[ReplyDelta]:
        """The deltas since the last call."""
        found, self._deltas = self._deltas, []
        return found

    def think(self, text: str) -> None:
        """More thinking, as it is in the answer."""
        if text:
            self.regions.settle(SpanKind.REASONING, len(text))
            self._reasoning.append(text)
            self._deltas.append(ReasoningDelta(text))

    def say(self, text: str) -> None:
        """More text, as it is in the answer."""
        if text:
            self.regions.settle(SpanKind.TEXT, len(text))
            self._text.append(text)
            self._deltas.append(TextDelta(text))

    def say_token(self, text: str) -> None:
        """One more token that is text only; all text before it must be settled."""
        self.regions.whole(text, SpanKind.TEXT)
        self._text.append(text)
        self._deltas.append(TextDelta(text))

    def part(self, *, is_thinking: bool) -> None:
        """Separates a stretch of thinking or text from the one before, if a format has several."""
        if is_thinking and self._reasoning:
            self._reasoning.append("\n\n")
            self._deltas.append(ReasoningDelta("\n\n"))
        elif not is_thinking and self._text:
            self._text.append("\n\n")
            self._deltas.append(TextDelta("\n\n"))

    def mark(self, length: int) -> None:
        """The next characters are the format's own."""
        self.regions.settle(SpanKind.MARK, length)

    def body(self, length: int) -> None:
        """The next characters are those of calls."""
        self.regions.settle(SpanKind.TOOL_CALL, length)

    def call(self, name: str, own_id: str | None = None) -> None:
        """A call begins; without an id it gets one."""
        index = len(self._calls)
        self._calls.append(_Call(own_id or self._call_id(index), name))
        self._deltas.append(CallDelta(index, self._calls[index].id, name))

    def argue(self, text: str) -> None:
        """More of the last call's arguments."""
        if text:
            self._calls[-1].arguments.append(text)
            self._deltas.append(ArgumentsDelta(len(self._calls) - 1, text))

    def end_call(self) -> None:
        """The last call is complete."""
        self.calls_ended += 1

    def message(self) -> Message:
        """The reply as an assistant's message."""
        text = "".join(self._text)
        return Message(
            Role.ASSISTANT,
            (TextPart(text),) if text else (),
            reasoning="".join(self._reasoning) or None,
            tool_calls=tuple(ToolCall(call.id, call.name, "".join(call.arguments)) for call in self._calls),
        )


class Regions:
    """Records where each token's text ends and the kind of each stretch, and combines the two as spans.

    A token belongs to the stretch that its first character is in; special tokens are marks.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []  # where each token's text starts; -1 for a special token
        self._ends: list[int] = []  # where each stretch ends, rising
        self._kinds: list[SpanKind] = []
        self._size = 0
        self._settled = 0

    def token(self, text: str) -> None:
        """One more token, and the text it completed."""
        self._starts.append(self._size)
        self._size += len(text)

    def whole(self, text: str, kind: SpanKind) -> None:
        """One more token whose text is of this kind, all text before it must be settled."""
        self._starts.append(self._size)
        self._size = self._settled = self._size + len(text)
        if self._kinds and self._kinds[-1] is kind:
            self._ends[-1] = self._size
        else:
            self._ends.append(self._size)
            self._kinds.append(kind)

    def special(self, flushed: str) -> None:
        """One more token that is the format's own; `flushed` is the rest of the text of earlier tokens."""
        self._size += len(flushed)
        self._starts.append(-1)

    def leftover(self, text: str) -> None:
        """The rest of the text at the end."""
        self._size += len(text)

    def settle(self, kind: SpanKind, length: int) -> None:
        """The next `length` characters are of this kind."""
        if not length:
            return
        self._settled += length
        if self._kinds and self._kinds[-1] is kind:
            self._ends[-1] = self._settled
        else:
            self._ends.append(self._settled)
            self._kinds.append(kind)

    def spans(self) -> tuple[Span, ...]:
        """Spans that cover all tokens so far. Text not yet settled counts as text."""
        starts: list[int] = []  # one for each span: an object per token would delay a long answer's end by milliseconds
        kinds: list[SpanKind] = []
        region, last = 0, None
        for index, start in enumerate(self._starts):
            kind = SpanKind.MARK
            if start >= 0:
                while region < len(self._ends) and self._ends[region] <= start:
                    region += 1
                kind = self._kinds[min(region, len(self._kinds) - 1)] if self._kinds else SpanKind.TEXT
            if kind is not last:
                starts.append(index)
                kinds.append(kind)
                last = kind
        return tuple(map(Span, kinds, starts, [*starts[1:], len(self._starts)]))
