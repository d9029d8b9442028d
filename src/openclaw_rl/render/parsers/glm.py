"""GLM-4.5's answers: thinking, text, <tool_call>name <arg_key>k</arg_key> <arg_value>v</arg_value></tool_call>."""

from __future__ import annotations

import re
from collections.abc import Sequence

from openclaw_rl.core.message import Tool
from openclaw_rl.render.parsers.marked import MarkedFormat, Marks
from openclaw_rl.render.parsers.reply import Reply
from openclaw_rl.render.parsers.tagged import TaggedCall, Tags

TAGS = Tags(
    head=re.compile(r"\s*([^<>\s]+)\s*"),
    key=re.compile(r"\s*<arg_key>((?:(?!</arg_key>).)*)</arg_key>\s*<arg_value>", re.DOTALL),
    closes="</arg_value>",
    foot=re.compile(r"\s*"),
)
MARKS = Marks("<tool_call>", "</tool_call>", inside=("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"))


def glm(reply: Reply, tools: Sequence[Tool] | None, *, is_thinking: bool) -> MarkedFormat:
    """The format."""
    return MarkedFormat(MARKS, reply, lambda: TaggedCall(reply, TAGS, tools), is_thinking=is_thinking)
