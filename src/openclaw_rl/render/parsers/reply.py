"""An answer as far as it has been read: what formats write into, and what deltas and spans come out of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from openclaw_rl.core.completion import SpanKind
from openclaw_rl.core.message import Message, Role, TextPart, ToolCall
from openclaw_rl.render.parsers.deltas import ArgumentsDelta, CallDelta, ReasoningDelta, ReplyDelta, TextDelta
from openclaw_rl.render.parsers.regions import Regions


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
