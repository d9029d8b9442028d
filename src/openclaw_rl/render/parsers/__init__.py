"""Parsers of sampled tokens: one file for each way of writing calls, which several families may share."""

from __future__ import annotations

from collections.abc import Sequence

from openclaw_rl.core.message import Tool
from openclaw_rl.render.call_ids import nine_letters
from openclaw_rl.render.detokenise import TokenBytes
from openclaw_rl.render.parsers.deltas import (
    ArgumentsDelta,
    CallDelta,
    ReasoningDelta,
    ReplyDelta,
    StreamParser,
    TextDelta,
)
from openclaw_rl.render.parsers.family import THINK_MARKS, Family, family_of, opens_thinking, writes_fences
from openclaw_rl.render.parsers.harmony import HarmonyFormat
from openclaw_rl.render.parsers.headed import deepseek, kimi
from openclaw_rl.render.parsers.llama import llama
from openclaw_rl.render.parsers.mistral import mistral
from openclaw_rl.render.parsers.objects import hermes
from openclaw_rl.render.parsers.plain import PlainParser
from openclaw_rl.render.parsers.reading import Format, FormatParser
from openclaw_rl.render.parsers.reply import Reply
from openclaw_rl.render.parsers.tagged import glm, qwen_coder

__all__ = [
    "ArgumentsDelta",
    "CallDelta",
    "Family",
    "ReasoningDelta",
    "ReplyDelta",
    "StreamParser",
    "TextDelta",
    "family_of",
    "opens_thinking",
    "parser_of",
    "writes_fences",
]


def parser_of(
    family: Family, table: TokenBytes, *, opening: str, call_prefix: str, tools: Sequence[Tool] | None = None
) -> StreamParser:
    """A parser for one answer; `opening` is what the template put in front of it.

    `tools` are those that were offered, for formats that write calls without marks or arguments without types.
    """
    if family is Family.PLAIN:
        return PlainParser(table)
    has_rule = family is Family.MISTRAL
    reply = Reply(lambda index: nine_letters(f"{call_prefix}{index}") if has_rule else f"{call_prefix}{index}")
    is_thinking = opening.rstrip().endswith(THINK_MARKS)
    return FormatParser(table, _format(family, reply, tools, is_thinking), reply)


def _format(family: Family, reply: Reply, tools: Sequence[Tool] | None, is_thinking: bool) -> Format:
    match family:
        case Family.QWEN_CODER:
            return qwen_coder(reply, tools, is_thinking=is_thinking)
        case Family.LLAMA:
            return llama(reply, tools, is_thinking=is_thinking)
        case Family.DEEPSEEK:
            return deepseek(reply, is_thinking=is_thinking)
        case Family.GLM:
            return glm(reply, tools, is_thinking=is_thinking)
        case Family.KIMI:
            return kimi(reply, is_thinking=is_thinking)
        case Family.MISTRAL:
            return mistral(reply, is_thinking=is_thinking)
        case Family.HARMONY:
            return HarmonyFormat(reply)
        case _:
            return hermes(reply, is_thinking=is_thinking)
