"""Kimi K2's answers: calls in a section of their own, each under the id `functions.name:index` it was given."""

from __future__ import annotations

import re

from openclaw_rl.render.parsers.headed import HeadedCall, Header
from openclaw_rl.render.parsers.marked import MarkedFormat, Marks
from openclaw_rl.render.parsers.reply import Reply

_ARGUMENTS = "<|tool_call_argument_begin|>"
MARKS = Marks(
    "<|tool_call_begin|>",
    "<|tool_call_end|>",
    aside=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    inside=(_ARGUMENTS,),
)
_HEADER = re.compile(rf"\s*((?:functions\.)?([^\s<]+?):\d+)\s*{re.escape(_ARGUMENTS)}\s*(?=\{{)")


def kimi(reply: Reply, *, is_thinking: bool) -> MarkedFormat:
    """The format. Calls keep the ids that were sampled: results are read under them."""
    return MarkedFormat(MARKS, reply, lambda: HeadedCall(reply, _header), is_thinking=is_thinking)


def _header(raw: str) -> Header | None:
    found = _HEADER.match(raw)
    return None if found is None else Header(found.group(2), found.end(), found.group(1))
