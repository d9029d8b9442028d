"""What a request constrains its answer to.

Its text: a JSON schema, JSON, a regular expression, a choice or a grammar. Its calls: which tools it may, must or must
not call. And the form that follows from both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

import msgspec

from openclaw_rl.core.message import Json, Tool
from openclaw_rl.errors import RequestError
from openclaw_rl.render.called import CallableTool
from openclaw_rl.render.forms import AnswerForm
from openclaw_rl.render.lark import WHITESPACE, Lark, any_of, regex
from openclaw_rl.serve.apis.chat.wire import value_of
from openclaw_rl.serve.request.extras import Extras
from openclaw_rl.serve.request.names import flat_name

_NAMES = ("json", "regex", "choice", "grammar", "json_object")
_IDLE = frozenset(("disable_fallback", "disable_additional_properties"))  # options of vLLM's own libraries
_SPACES = ("whitespace_pattern", "disable_any_whitespace")


@dataclass(frozen=True, slots=True)
class HeldText:
    """A rule for the text, or the client's whole grammar instead."""

    text: Callable[[Lark], str] | None = None
    own: str = ""
    param: str = ""  # the client's name for it


def held_text(body: Extras, format_: Json, param: str) -> HeldText | None:
    """The rule for the text, from the API's own `format_` (called `param` there) or from vLLM's parameters.

    None if the text is free. Raises RequestError if two rules are given or one cannot be read.
    """
    found = {param: _of_format(format_, param)}
    space = WHITESPACE if body.guided_whitespace_pattern is None else body.guided_whitespace_pattern
    schema = value_of(body.guided_json)
    if schema is not None:
        found["guided_json"] = _of_json(schema, "guided_json", space)
    if body.guided_regex is not None:
        found["guided_regex"] = _of_regex(body.guided_regex)
    if body.guided_choice is not None:
        found["guided_choice"] = _of_choice(body.guided_choice, "guided_choice")
    if body.guided_grammar is not None:
        found["guided_grammar"] = _of_grammar(body.guided_grammar, "guided_grammar")
    found["structured_outputs"] = _of_structured(value_of(body.structured_outputs))
    asked = {name: held for name, held in found.items() if held is not None}
    if len(asked) > 1:
        raise RequestError(
            f"several constraints on the answer are given: {', '.join(asked)}",
            fix="send one of them",
            param=list(asked)[1],
        )
    return next((replace(held, param=name) for name, held in asked.items()), None)


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


def _of_format(value: Json, param: str) -> HeldText | None:
    if value is None or value == {}:
        return None
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "text":
        return None
    if not isinstance(value, dict) or kind not in ("json_object", "json_schema"):
        raise RequestError(
            f"{param} is of type {kind!r}",
            fix="use text, json_object or json_schema",
            code="unsupported_parameter",
            param=param,
        )
    if kind == "json_object":
        return _of_json({"type": "object"}, param)
    inner = value.get("json_schema", value)
    if not isinstance(inner, dict):
        raise RequestError(f"{param}.json_schema is not an object", fix="send name and schema", param=param)
    return _of_json(inner.get("schema", {"type": "object"}), param)


def _of_structured(value: Json) -> HeldText | None:
    if value is None or value == {}:
        return None
    param = "structured_outputs"
    if not isinstance(value, dict):
        raise RequestError(f"{param} is not an object", fix="send one", param=param)
    given = {name: each for name, each in value.items() if each is not None and each is not False}
    strange = sorted(set(given) - set(_NAMES) - _IDLE - set(_SPACES))
    if strange:
        raise RequestError(
            f"{param}.{strange[0]} is not supported",
            fix=f"use one of {', '.join(_NAMES)}",
            code="unsupported_parameter",
            param=param,
        )
    asked = [name for name in _NAMES if name in given]
    if not asked:
        return None
    if len(asked) > 1:
        raise RequestError(f"{param} holds {' and '.join(asked)}", fix="send one of them", param=param)
    name, each = asked[0], given[asked[0]]
    pattern = given.get("whitespace_pattern", "" if "disable_any_whitespace" in given else WHITESPACE)
    if name == "json":
        return _of_json(each, f"{param}.json", str(pattern))
    if name == "json_object":
        return _of_json({"type": "object"}, param, str(pattern))
    if name == "choice":
        return _of_choice(each, f"{param}.choice")
    if not isinstance(each, str):
        raise RequestError(f"{param}.{name} is not a string", fix="send a text", param=param)
    return _of_regex(each) if name == "regex" else _of_grammar(each, f"{param}.grammar")


def _of_json(schema: Json, param: str, space: str = WHITESPACE) -> HeldText:
    if isinstance(schema, str):  # a schema may be sent as text
        try:
            schema = msgspec.json.decode(schema)
        except (msgspec.DecodeError, RecursionError) as problem:
            raise RequestError(
                f"{param} is not valid JSON: {problem}", fix="send a JSON schema", param=param
            ) from problem
    if not isinstance(schema, dict | bool):
        raise RequestError(f"{param} is not a JSON schema", fix="send an object", param=param)
    return HeldText(partial(_json, schema=schema, space=space))


def _json(lark: Lark, *, schema: dict[str, Json] | bool, space: str) -> str:
    return lark.json(schema, space)


def _of_regex(pattern: str) -> HeldText:
    written = regex(pattern)
    return HeldText(lambda lark: lark.rule(written))


def _of_choice(choices: Json | list[str], param: str) -> HeldText:
    texts = [choice for choice in choices if isinstance(choice, str)] if isinstance(choices, list) else []
    if not isinstance(choices, list) or not texts or len(texts) != len(choices):
        raise RequestError(f"{param} is not a list of strings", fix="send at least one text", param=param)
    return HeldText(lambda lark: any_of([lark.text(text) for text in texts]))


def _of_grammar(grammar: str, param: str) -> HeldText:
    if not grammar.strip():
        raise RequestError(f"{param} is empty", fix="send a grammar in Lark or GBNF", param=param)
    if grammar.lstrip().startswith("{"):
        raise RequestError(f"{param} is JSON", fix="send a grammar in Lark or GBNF", param=param)
    return HeldText(own=grammar)


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
