"""From what each stretch of text is to what each token is."""

from __future__ import annotations

from openclaw_rl.core.completion import Span, SpanKind


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
