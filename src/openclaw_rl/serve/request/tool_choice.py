"""Which tools an answer may call, must call, or must not call; and how that and the text's form constrain it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from openclaw_rl.core.message import Json, Tool
from openclaw_rl.errors import RequestError
from openclaw_rl.render.called import CallableTool
from openclaw_rl.render.forms import AnswerForm
from openclaw_rl.serve.request.held_text import HeldText
from openclaw_rl.serve.request.names import flat_name


class CallMode(StrEnum):
    """Whether tools are called."""

    NONE = "none"
    AUTO = "auto"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """A request's choice; `names` are the allowed tools, None for all. With `is_one` there is one call."""

    calling: CallMode = CallMode.AUTO
    names: tuple[str, ...] | None = None
    is_one: bool = False

    def offered(self, tools: Sequence[Tool]) -> tuple[Tool, ...]:
        """The tools shown to the model. Raises RequestError for an unknown name, and if a call is due without tools."""
        if self.calling is CallMode.NONE:
            return ()
        known = {tool.name for tool in tools}
        strange = [name for name in self.names or () if name not in known]
        if strange or (self.calling is CallMode.REQUIRED and not tools):
            raise RequestError(
                f"tool_choice names {strange[0]!r}, which is not among the tools"
                if strange
                else "tool_choice asks for a call, and there are no tools",
                fix="offer the tool, or leave tool_choice out",
                param="tool_choice",
            )
        if self.calling is CallMode.AUTO and self.names is not None:
            return tuple(tool for tool in tools if tool.name in self.names)
        return tuple(tools)


def tool_choice_of(value: Json) -> ToolChoice:
    """The choice as OpenAI's two APIs write it. Raises RequestError if it is invalid."""
    if value is None:
        return ToolChoice()
    if isinstance(value, str) and value in set(CallMode):
        return ToolChoice(CallMode(value))
    if isinstance(value, dict):
        name = _name_of(value)
        if value.get("type") in ("function", "custom") and name is not None:
            return ToolChoice(CallMode.REQUIRED, (name,), is_one=True)
        if value.get("type") == "allowed_tools":
            return _allowed(value.get("allowed_tools", value))
    raise RequestError(
        f"tool_choice is {msgspec.json.encode(value).decode()[:200]}",
        fix="use auto, none, required or one of the functions",
        code="unsupported_parameter",
        param="tool_choice",
    )


def asks_elsewhere(value: Json, kinds: Iterable[str], own: Collection[str]) -> bool:
    """Whether the only calls that OpenAI's two APIs ask for here are of tools that are left out.

    `kinds` are those of all tools in the request, `own` those that the client runs.
    """
    if value == CallMode.REQUIRED:
        found = set(kinds)
        return bool(found) and found.isdisjoint(own)
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(kind, str) or not kind:
        return False
    return any(each not in own and each.startswith(kind) for each in kinds)  # a tool's kind may end in a date


def answer_form(
    tools: Sequence[Tool],
    choice: ToolChoice,
    strict: Collection[str],
    held: HeldText | None,
    *,
    has_one_call: bool,
) -> AnswerForm | None:
    """What constrains the answer; None if it is free. `tools` are those offered, `strict` the names of some."""
    if choice.calling is CallMode.REQUIRED:
        called = [
            CallableTool(tool.name, tool.parameters)
            for tool in tools
            if choice.names is None or tool.name in choice.names
        ]
        return AnswerForm(
            tools=tuple(called), needs_call=True, has_one_call=has_one_call or choice.is_one, param="tool_choice"
        )
    if held is None and not any(tool.name in strict for tool in tools):
        return None
    called = [CallableTool(tool.name, tool.parameters if tool.name in strict else None) for tool in tools]
    held = held or HeldText(param="tools")
    return AnswerForm(held.text, held.own, tuple(called), has_one_call=has_one_call, param=held.param)


def _allowed(value: Json) -> ToolChoice:
    mode = value.get("mode", "auto") if isinstance(value, dict) else None
    tools = value.get("tools") if isinstance(value, dict) else None
    names = [_name_of(tool) for tool in tools] if isinstance(tools, list) else []
    if mode not in ("auto", "required") or not names or None in names:
        raise RequestError(
            "tool_choice allows no tools by name", fix="send mode and the tools' names", param="tool_choice"
        )
    return ToolChoice(CallMode(mode), tuple(name for name in names if name is not None))


def _name_of(value: Json) -> str | None:
    """The tool's name as the model knows it, in the shape of either API."""
    if not isinstance(value, dict):
        return None
    inner = value.get("function", value)
    name = inner.get("name") if isinstance(inner, dict) else None
    space = inner.get("namespace") if isinstance(inner, dict) else None
    if not isinstance(name, str) or not name:
        return None
    return flat_name(name, space) if isinstance(space, str) else name
