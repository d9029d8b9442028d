"""Answers of text only, for models whose template has neither thinking nor tool calls."""

from __future__ import annotations

from collections.abc import Sequence

from openclaw_rl.core.completion import Span, SpanKind
from openclaw_rl.core.message import Message, Role, TextPart
from openclaw_rl.render.encoding import Detokeniser, TokenBytes
from openclaw_rl.render.parsers.reply import Regions, ReplyDelta, TextDelta


class PlainParser:
    """Every ordinary token is text, every special one a mark."""

    def __init__(self, table: TokenBytes) -> None:
        self._special = table.special
        self._detokeniser = Detokeniser(table)
        self._regions = Regions()
        self._text: list[str] = []
        self.calls_ended = 0

    def feed(self, tokens: Sequence[int]) -> list[ReplyDelta]:
        """One text delta for each token that completes a character."""
        found: list[ReplyDelta] = []
        for token in tokens:
            if token in self._special:
                text = self._detokeniser.flush()
                self._regions.special(text)
            else:
                text = self._detokeniser.feed(token)
                self._regions.token(text)
            if text:
                found.append(self._say(text))
        return found

    def finish(self) -> list[ReplyDelta]:
        """The rest of a broken character."""
        text = self._detokeniser.flush()
        self._regions.leftover(text)
        return [self._say(text)] if text else []

    def message(self) -> Message:
        """The text as an assistant's message."""
        text = "".join(self._text)
        return Message(Role.ASSISTANT, (TextPart(text),) if text else ())

    def spans(self) -> tuple[Span, ...]:
        """Text and marks."""
        return self._regions.spans()

    def _say(self, text: str) -> TextDelta:
        self._regions.settle(SpanKind.TEXT, len(text))
        self._text.append(text)
        return TextDelta(text)
