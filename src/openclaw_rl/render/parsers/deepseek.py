"""DeepSeek's answers (V3, R1, V3.1): calls between marks of their own, with or without a fence around the arguments."""

from __future__ import annotations

import re

from openclaw_rl.render.parsers.headed import HeadedCall, Header
from openclaw_rl.render.parsers.marked import MarkedFormat, Marks
from openclaw_rl.render.parsers.reply import Reply

_SEPARATOR = "<｜tool▁sep｜>"
MARKS = Marks(
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    aside=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    inside=(_SEPARATOR,),
)
_FENCED = re.compile(rf"\s*function{_SEPARATOR}([^\n<]*[^\s<])\s*\n```json\s*(?=\{{)")  # V3 and R1
_BARE = re.compile(rf"\s*([^\s<](?:[^\n<]*[^\s<])?)\s*{_SEPARATOR}\s*(?=\{{)")  # V3.1


def deepseek(reply: Reply, *, is_thinking: bool) -> MarkedFormat:
    """The format."""
    return MarkedFormat(MARKS, reply, lambda: HeadedCall(reply, _header), is_thinking=is_thinking)


def _header(raw: str) -> Header | None:
    found = _FENCED.match(raw) or _BARE.match(raw)
    return None if found is None else Header(found.group(1), found.end())
