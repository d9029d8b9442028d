"""Tools of the Responses API, as functions, the only kind shown to a model.

A custom tool, whose input is free text, becomes a function of one text. Functions of a namespace join the others under
names that contain both. The shape in which each was sent is kept by its flat name, so that calls return in that shape.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from openclaw_rl.core.message import Json, Tool
from openclaw_rl.errors import RequestError
from openclaw_rl.serve.apis.chat.wire import value_of
from openclaw_rl.serve.request.answer_form import ToolChoice, asks_elsewhere, tool_choice_of
from openclaw_rl.serve.request.names import check_name, flat_name

INPUT = "input"  # the one argument of a custom tool's function
_EMPTY: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
_OWN = frozenset(("function", "custom"))  # the kinds that the client runs
_DEPTH = 2  # a namespace contains tools, and no other namespace


class OfferedTool(msgspec.Struct):
    """A tool, whatever its kind; `tools` are those of a namespace, `format` is that of a custom tool's input."""

    type: str
    name: str = ""
    description: str | None = None
    parameters: msgspec.Raw = _EMPTY
    strict: bool | None = None
    tools: list[OfferedTool] | None = None
    format: msgspec.Raw = _EMPTY


def functions_of(specs: Sequence[OfferedTool]) -> tuple[Tool, ...]:
    """The tools as functions. Other kinds exist only on OpenAI's own servers or models, and are left out.

    Raises RequestError for a tool without a name, with another's name, or with parameters that are not a schema.
    """
    found: list[Tool] = []
    shapes = shapes_of(specs)
    for where, namespace, spec in _laid_flat(specs):
        if spec.type not in _OWN:
            continue
        if not spec.name:
            raise RequestError(f"{where} has no name", fix="send tools with a name", param="tools")
        check_name(spec.name, f"{where}.name")
        name = flat_name(spec.name, namespace)
        check_name(name, f"{where}.name")
        if name in shapes and any(tool.name == name for tool in found):
            raise RequestError(
                f"{where} is called {name}, as another tool is", fix="give each its own name", param="tools"
            )
        parameters = _schema(spec) if spec.type == "custom" else value_of(spec.parameters)
        if parameters is None:
            parameters = {"type": "object", "properties": {}}
        if not isinstance(parameters, dict):
            raise RequestError(f"{where}.parameters is no object", fix="send a JSON schema", param="tools")
        found.append(Tool(name, spec.description or "", parameters))
    return tuple(found)


def shapes_of(specs: Sequence[OfferedTool]) -> dict[str, Json]:
    """How tools that are not plain functions were sent, by the names under which the model knows them."""
    found: dict[str, Json] = {}
    for _, namespace, spec in _laid_flat(specs):
        if spec.type in ("function", "custom") and (namespace or spec.type == "custom"):
            found[flat_name(spec.name, namespace)] = {"type": spec.type, "name": spec.name, "namespace": namespace}
    return found


def strict_of(specs: Sequence[OfferedTool]) -> set[str]:
    """The tools whose calls are constrained to their schema."""
    return {flat_name(spec.name, namespace) for _, namespace, spec in _laid_flat(specs) if spec.strict}


def choice_of(value: Json, specs: Sequence[OfferedTool]) -> ToolChoice:
    """The choice of tools; free if only tools that a server would run are asked for. Raises RequestError."""
    return ToolChoice() if is_for_servers(value, specs) else tool_choice_of(value)


def is_for_servers(value: Json, specs: Sequence[OfferedTool]) -> bool:
    """Whether `tool_choice` asks only for calls of tools that a server would run."""
    return asks_elsewhere(value, (spec.type for _, _, spec in _laid_flat(specs)), _OWN)


def passed_over_tools(specs: Sequence[OfferedTool]) -> list[str]:
    """The parts of the tools without effect, by place: kinds that are left out, formats that constrain nothing."""
    found: set[str] = set()
    for _, namespace, spec in _laid_flat(specs):
        kind = f"tools.namespace.{spec.type}" if namespace else f"tools.{spec.type}"
        if spec.type not in _OWN:
            found.add(kind)
        elif _syntax(spec):
            found.add(f"{kind}.format.{_syntax(spec)}")
    return sorted(found)


def called_with(text: str | None) -> str:
    """The arguments of a call whose input was this text."""
    return json.dumps({INPUT: text or ""}, ensure_ascii=False)


def input_of(arguments: str) -> str:
    """The text that a custom tool is called with; arguments in any other form are returned as they are."""
    try:
        held: Json = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    if isinstance(held, dict) and len(held) == 1:
        text = next(iter(held.values()))
        if isinstance(text, str):
            return text
    return arguments


def shape_of(name: str, shapes: Json) -> tuple[str, str | None, bool]:
    """The name of a tool as it was sent, its namespace, and whether its input is free text."""
    held = shapes.get(name) if isinstance(shapes, dict) else None
    if not isinstance(held, dict):
        return name, None, False
    namespace = held.get("namespace")
    return str(held.get("name")), namespace if isinstance(namespace, str) else None, held.get("type") == "custom"


def tools_as_sent(tools: Sequence[Tool], shapes: Json) -> list[Json]:
    """The tools in the shapes in which they came."""
    found: list[Json] = []
    spaces: dict[str, list[Json]] = {}
    for tool in tools:
        name, namespace, is_custom = shape_of(tool.name, shapes)
        item = _custom(name, tool) if is_custom else _function(name, tool)
        if namespace is None:
            found.append(item)
            continue
        if namespace not in spaces:
            spaces[namespace] = []
            found.append({"type": "namespace", "name": namespace, "description": "", "tools": spaces[namespace]})
        spaces[namespace].append(item)
    return found


def _laid_flat(
    specs: Sequence[OfferedTool], where: str = "tools", namespace: str | None = None, depth: int = _DEPTH
) -> Iterator[tuple[str, str | None, OfferedTool]]:
    """Each tool with its place in the request and its namespace; a namespace itself is not a tool."""
    for index, spec in enumerate(specs):
        here = f"{where}[{index}]"
        if spec.type == "namespace" and spec.name and spec.tools is not None and depth > 1:
            yield from _laid_flat(spec.tools, f"{here}.tools", spec.name, depth - 1)
        else:
            yield here, namespace, spec


def _schema(spec: OfferedTool) -> dict[str, Json]:
    """A function of one text; its description contains the grammar that the text must follow."""
    text: dict[str, Json] = {"type": "string"}
    definition = _format(spec).get("definition")
    if isinstance(definition, str) and definition:
        text["description"] = f"Text that follows this {_syntax(spec)} grammar:\n{definition}"
    return {"type": "object", "properties": {INPUT: text}, "required": [INPUT], "additionalProperties": False}


def _format(spec: OfferedTool) -> Mapping[str, Json]:
    held = value_of(spec.format)
    return held if isinstance(held, dict) else {}


def _syntax(spec: OfferedTool) -> str:
    """The syntax that a custom tool's input must follow; empty if it is free."""
    held = _format(spec)
    return str(held.get("syntax") or "grammar") if held.get("type") == "grammar" else ""


def _function(name: str, tool: Tool) -> dict[str, Json]:
    parameters = dict(tool.parameters)
    about: dict[str, Json] = {"type": "function", "name": name, "description": tool.description}
    return {**about, "parameters": parameters, "strict": False}


def _custom(name: str, tool: Tool) -> dict[str, Json]:
    return {"type": "custom", "name": name, "description": tool.description, "format": {"type": "text"}}
