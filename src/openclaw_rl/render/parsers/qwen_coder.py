"""Qwen3-Coder's answers: calls as <function=name>, <parameter=key> value </parameter>, </function>."""

from __future__ import annotations

import re
from collections.abc import Sequence

from openclaw_rl.core.message import Tool
from openclaw_rl.render.parsers.marked import MarkedFormat, Marks
from openclaw_rl.render.parsers.reply import Reply
from openclaw_rl.render.parsers.tagged import TaggedCall, Tags

MARKS = Marks("<tool_call>", "</tool_call>")
TAGS = Tags(
    head=re.compile(r"\s*<function=([^<>\s]+)>\s*(?:</function>\s*)?"),
    key=re.compile(r"\s*<parameter=([^<>\n]+)>"),
    closes="</parameter>",
    foot=re.compile(r"\s*(?:</function>\s*)?"),
    has_lines=True,
)


def qwen_coder(reply: Reply, tools: Sequence[Tool] | None, *, is_thinking: bool) -> MarkedFormat:
    """The format."""
    return MarkedFormat(MARKS, reply, lambda: TaggedCall(reply, TAGS, tools), is_thinking=is_thinking)
