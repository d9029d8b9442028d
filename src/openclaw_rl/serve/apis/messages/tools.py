"""The tools of Anthropic's Messages API: a client's own, those with an agreed schema, those that a server runs."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files

import msgspec

from openclaw_rl.core.message import Json, Tool
from openclaw_rl.errors import RequestError
from openclaw_rl.serve.apis.chat.wire import value_of
from openclaw_rl.serve.request.names import check_name

_EMPTY: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
_DATED = re.compile(r"(.+)_20\d{6}")
_WITH_UNDO = ("text_editor_20241022", "text_editor_20250124")


class ToolParam(msgspec.Struct):
    """A tool: with its own schema, or of a type whose schema is agreed on."""

    name: str = ""
    type: str | None = None
    description: str | None = None
    input_schema: msgspec.Raw = _EMPTY
    strict: bool | None = None
    defer_loading: bool | None = None
    display_width_px: int | None = None
    display_height_px: int | None = None
    cache_control: msgspec.Raw = _EMPTY


def tools_of(sent: Sequence[ToolParam]) -> tuple[Tool, ...]:
    """The tools shown to the model. Raises RequestError for one without a name or a schema."""
    return tuple(_tool(tool, f"tools[{index}]") for index, tool in enumerate(sent) if not is_elsewhere(tool))


def is_elsewhere(tool: ToolParam) -> bool:
    """Whether a server would have to run it, as `web_search_20250305`: its type is neither plain nor agreed on."""
    return tool.type not in (None, "custom") and not bytes(tool.input_schema) and _agreed(tool.type or "") is None


def _tool(sent: ToolParam, where: str) -> Tool:
    if not sent.name:
        raise RequestError(f"{where} has no name", fix="send tools with a name and an input_schema", param="tools")
    check_name(sent.name, f"{where}.name")
    schema = value_of(sent.input_schema)
    if isinstance(schema, dict):
        return Tool(sent.name, sent.description or "", schema)
    agreed = _agreed(sent.type or "")
    if agreed is None or schema is not None:
        raise RequestError(f"{where}.input_schema is not an object", fix="send a JSON schema", param="tools")
    description, known = str(agreed["description"]), agreed["input_schema"]
    assert isinstance(known, dict)
    if sent.display_width_px and sent.display_height_px:
        description += f" Its screen has {sent.display_width_px} by {sent.display_height_px} pixels."
    return Tool(sent.name, sent.description or description, known)


def _agreed(kind: str) -> Mapping[str, Json] | None:
    """Schema and description of a tool type; None for types that no client runs."""
    known = _known()
    if kind in _WITH_UNDO:
        return known["text_editor_20241022"]
    dated = _DATED.fullmatch(kind)
    return None if dated is None else known.get(dated[1])


@functools.cache
def _known() -> dict[str, dict[str, Json]]:
    held: dict[str, dict[str, Json]] = json.loads(
        files("openclaw_rl.serve.apis.messages").joinpath("anthropic_tools.json").read_text("utf-8")
    )
    return held
