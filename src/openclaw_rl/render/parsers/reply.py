"""An answer as far as it has been read: what tokens add to it, and what formats write into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from openclaw_rl.core.completion import Span, SpanKind
from openclaw_rl.core.message import Message, Role, TextPart, ToolCall


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of what the model thinks before it speaks."""

    text: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of what it says."""

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
        """What these ids add."""
        ...

    def finish(self) -> list[ReplyDelta]:
        """What was held back, once no more ids come."""
        ...

    def message(self) -> Message:
        """The reply so far; whole after `finish`."""
        ...

    def spans(self) -> tuple[Span, ...]:
        """Which of the ids fed are what; they tile them."""
        ...

    @property
    def calls_ended(self) -> int:
        """How many tool calls are complete."""
        ...


@dataclass(slots=True)
class _Call:
    id: str
    name: str
    arguments: list[str] = field(default_factory=list)


class Reply:
    """Formats call these in the order of the text. Every character read is settled once, by its kind.

    What has been handed out is never taken back: `deltas` gives what was added since it was last called.
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
        """Whether it holds any text."""
        return bool(self._text)

    @property
    def calls(self) -> int:
        """How many calls have begun."""
        return len(self._calls)

    def deltas(self) -> list[ReplyDelta]:
        """What was added since the last time."""
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
        """One more token, all of it text, where all text before it is settled."""
        self.regions.whole(text, SpanKind.TEXT)
        self._text.append(text)
        self._deltas.append(TextDelta(text))

    def part(self, *, is_thinking: bool) -> None:
        """Sets one stretch of thinking or text apart from the one before, where a format has several."""
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
        """A call begins; without an id of its own it gets one."""
        index = len(self._calls)
        self._calls.append(_Call(own_id or self._call_id(index), name))
        self._deltas.append(CallDelta(index, self._calls[index].id, name))

    def argue(self, text: str) -> None:
        """More of the last call's arguments."""
        if text:
            self._calls[-1].arguments.append(text)
            self._deltas.append(ArgumentsDelta(len(self._calls) - 1, text))

    def end_call(self) -> None:
        """The last call is whole."""
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
    """Notes where each token's text ends and what each stretch of text is, and joins the two as spans.

    A token belongs to the stretch that its first character lies in; special tokens are marks.
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
        """One more token whose text is of this kind, where all text before it is settled."""
        self._starts.append(self._size)
        self._size = self._settled = self._size + len(text)
        if self._kinds and self._kinds[-1] is kind:
            self._ends[-1] = self._size
        else:
            self._ends.append(self._size)
            self._kinds.append(kind)

    def special(self, flushed: str) -> None:
        """One more token that is the format's own; `flushed` is text the tokens before it left over."""
        self._size += len(flushed)
        self._starts.append(-1)

    def leftover(self, text: str) -> None:
        """Text that the tokens so far left over at the end."""
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
        """The tokens so far, tiled. Text not yet settled counts as text."""
        starts: list[int] = []  # one for each span: an object a token would take milliseconds of a long answer's end
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
