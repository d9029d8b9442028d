"""Hermes-style ChatML answers (Qwen and many others): <think>...</think>, text, <tool_call>{json}</tool_call>."""

from __future__ import annotations

from openclaw_rl.render.parsers.marked import MarkedFormat, Marks
from openclaw_rl.render.parsers.objects import ObjectCall
from openclaw_rl.render.parsers.reply import Reply

MARKS = Marks("<tool_call>", "</tool_call>")


def hermes(reply: Reply, *, is_thinking: bool) -> MarkedFormat:
    """The format."""
    return MarkedFormat(MARKS, reply, lambda: _HermesCall(reply), is_thinking=is_thinking)


class _HermesCall:
    """One object between its marks; what stands behind it there is left out."""

    def __init__(self, reply: Reply) -> None:
        self.raw = ""
        self.is_over = False
        self._call = ObjectCall(reply)

    def feed(self, text: str) -> int:
        """All of it belongs to the call."""
        self.raw += text
        self._call.feed(text)
        return len(text)

    def close(self, *, is_whole: bool) -> str | None:
        """Nothing is left over of a call; None where it is none."""
        return "" if self._call.close() else None
