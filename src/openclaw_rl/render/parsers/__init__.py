"""Parsers of sampled tokens, one file for each family of formats, and how a model's template tells its family."""

from __future__ import annotations

import contextlib
from enum import StrEnum

from openclaw_rl.core.message import Message, Role, TextPart, Tool, ToolCall, message
from openclaw_rl.errors import RequestError
from openclaw_rl.render.detokenise import TokenBytes
from openclaw_rl.render.parsers.deltas import (
    ArgumentsDelta,
    CallDelta,
    ReasoningDelta,
    ReplyDelta,
    StreamParser,
    TextDelta,
)
from openclaw_rl.render.parsers.hermes import CALL, THINK, HermesParser
from openclaw_rl.render.parsers.plain import PlainParser
from openclaw_rl.render.template import ChatTemplate

__all__ = ["ArgumentsDelta", "CallDelta", "Family", "ReasoningDelta", "ReplyDelta", "StreamParser", "TextDelta"]


class Family(StrEnum):
    """Formats of thinking and tool calls that we can read; a new one is a file here and a probe in `family_of`."""

    HERMES = "hermes"
    PLAIN = "plain"


def family_of(template: ChatTemplate) -> Family:
    """The format in which the template itself writes a reply that thinks and calls a tool, or asks for one."""
    reply = Message(
        Role.ASSISTANT, (TextPart("text"),), reasoning="thought", tool_calls=(ToolCall("call00000", "name", "{}"),)
    )
    asked = message(Role.USER, "asked")
    tool = Tool("name", "A probe.", {"type": "object", "properties": {}})
    written: list[str] = []
    for talk, tools in (([asked, reply], ()), ([asked], (tool,)), ([asked], ())):
        with contextlib.suppress(RequestError):  # a template without tools may refuse them
            written.append(template.text(talk, tools, generation_prompt=True))
    return Family.HERMES if any(CALL in text or THINK in text for text in written) else Family.PLAIN


def parser_of(family: Family, table: TokenBytes, *, opening: str, call_prefix: str) -> StreamParser:
    """A parser for one answer; `opening` is what the template put in front of it."""
    if family is Family.HERMES:
        return HermesParser(table, is_thinking=opening.rstrip().endswith(THINK), call_prefix=call_prefix)
    return PlainParser(table)
