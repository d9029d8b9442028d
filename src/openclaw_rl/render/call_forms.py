"""How each family writes tool calls, as grammars: what is sampled by them is read as calls of these tools."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from openclaw_rl.core.message import Json
from openclaw_rl.render.called import CallableTool, CallForm, unforced
from openclaw_rl.render.lark import Lark, any_of
from openclaw_rl.render.parsers import Family
from openclaw_rl.render.tagged_forms import glm_tags, qwen_coder_tags, tagged

_NAME = re.compile(r"[\w.:/-]+")
_OPEN: dict[str, Json] = {"type": "object"}


def call_form(family: Family, lark: Lark, tools: Sequence[CallableTool], *, is_fenced: bool) -> CallForm | None:
    """How calls of these tools are written; None where the family writes none. Raises RequestError.

    `is_fenced` tells the older of DeepSeek's two ways.
    """
    for tool in tools:
        if not _NAME.fullmatch(tool.name):
            raise unforced(f"the name {tool.name!r} cannot be distinguished from the format's own marks")
    match family:
        case Family.HERMES:
            return _hermes(lark, tools)
        case Family.QWEN_CODER:
            return tagged(lark, tools, qwen_coder_tags(lark))
        case Family.GLM:
            return tagged(lark, tools, glm_tags(lark))
        case Family.LLAMA:
            return _llama(lark, tools)
        case Family.DEEPSEEK:
            return _deepseek(lark, tools, is_fenced=is_fenced)
        case Family.KIMI:
            return _kimi(lark, tools)
        case Family.MISTRAL:
            return _mistral(lark, tools)
        case Family.HARMONY:
            return _harmony(lark, tools)
        case _:
            return None


def _each(lark: Lark, tools: Sequence[CallableTool], before: str, between: str) -> str:
    """The name of a tool between two expressions, and its arguments as JSON."""
    ways = [
        f"{lark.text(tool.name)} {between} {lark.json(_arguments(tool), of=f'the tool {tool.name}')}".strip()
        for tool in tools
    ]
    return f"{before} {any_of(ways)}"


def _arguments(tool: CallableTool) -> Mapping[str, Json]:
    """The schema of the arguments, which are an object whatever else it says."""
    schema = _OPEN if tool.schema is None else tool.schema
    return schema if "type" in schema else {**schema, **_OPEN}


def _hermes(lark: Lark, tools: Sequence[CallableTool]) -> CallForm:
    opens, closes = lark.mark("<tool_call>"), lark.mark("</tool_call>")
    call = _each(lark, tools, f"{opens} {lark.text(_JSON_HEAD)}", lark.text('", "arguments": '))
    return CallForm(lark.rule(f"{call} {lark.text(_JSON_FOOT)} {closes}"), "<tool_call>", between=lark.text("\n"))


_JSON_HEAD, _JSON_FOOT = '\n{"name": "', "}\n"


def _llama(lark: Lark, tools: Sequence[CallableTool]) -> CallForm:
    call = _each(lark, tools, lark.text('{"name": "'), lark.text('", "parameters": '))
    return CallForm(lark.rule(f"{call} {lark.text('}')}"), "", between=lark.text("; "))


def _deepseek(lark: Lark, tools: Sequence[CallableTool], *, is_fenced: bool) -> CallForm:
    separator = lark.mark("<｜tool▁sep｜>")
    opens, closes = lark.mark("<｜tool▁call▁begin｜>"), lark.mark("<｜tool▁call▁end｜>")
    if is_fenced:
        before, between, after = f"{opens} {lark.text('function')} {separator}", "\n```json\n", "\n```"
        call = f"{_each(lark, tools, before, lark.text(between))} {lark.text(after)} {closes}"
    else:
        call = f"{_each(lark, tools, opens, separator)} {closes}"
    calls_begin = "<｜tool▁calls▁begin｜>"
    return CallForm(
        lark.rule(call),
        calls_begin,
        opens=lark.mark(calls_begin),
        between=lark.text("\n") if is_fenced else "",
        closes=lark.mark("<｜tool▁calls▁end｜>"),
    )


def _kimi(lark: Lark, tools: Sequence[CallableTool]) -> CallForm:
    before = f"{lark.mark('<|tool_call_begin|>')} {lark.text('functions.')}"
    between = f"/:[0-9]{{1,3}}/ {lark.mark('<|tool_call_argument_begin|>')}"
    section = "<|tool_calls_section_begin|>"
    return CallForm(
        lark.rule(f"{_each(lark, tools, before, between)} {lark.mark('<|tool_call_end|>')}"),
        section,
        opens=lark.mark(section),
        closes=lark.mark("<|tool_calls_section_end|>"),
    )


def _mistral(lark: Lark, tools: Sequence[CallableTool]) -> CallForm:
    mark = "[TOOL_CALLS]"
    if lark.is_token("[ARGS]"):
        return CallForm(lark.rule(_each(lark, tools, lark.mark(mark), lark.mark("[ARGS]"))), mark)
    call = _each(lark, tools, lark.text('{"name": "'), lark.text('", "arguments": '))
    return CallForm(
        lark.rule(f"{call} {lark.text('}')}"),
        mark,
        opens=f'{lark.mark(mark)} " "? "["',
        between=lark.text(", "),
        closes=lark.text("]"),
    )


def _harmony(lark: Lark, tools: Sequence[CallableTool]) -> CallForm:
    """One call: a second is another message."""
    before = f"{lark.mark('<|channel|>')} {lark.text('commentary to=functions.')}"
    between = f"{lark.text(' ')} {lark.mark('<|constrain|>')} {lark.text('json')} {lark.mark('<|message|>')}"
    return CallForm(lark.rule(_each(lark, tools, before, between)), "<|channel|>")
