"""A reply of the policy as actions, and the environment's answers as messages."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openclaw_rl.core.message import Json, Tool, ToolCall, json_list
from openclaw_rl.envs.task import Action, Observation, PartKind

REPLY = "reply"  # the action of an environment without tools: the reply, as `text`
MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class AgentCall:
    """One call in a reply: the action, or the reason why it cannot be done."""

    id: str
    action: Action | None
    problem: str = ""


def calls_of(body: Mapping[str, Json], tools: Sequence[Tool]) -> list[AgentCall]:
    """The calls of a reply. If none, one without an id that says so; without tools, the reply is the action."""
    content = body.get("content")
    text = content if isinstance(content, str) else ""
    if not tools:
        return [AgentCall("", Action(REPLY, {"text": text}))]
    made = [call for call in (_tool_call(item) for item in json_list(body.get("tool_calls"))) if call is not None]
    if not made:
        return [AgentCall("", None, f"Your reply has no tool call, so nothing was done. {_offer(tools)}")]
    return [_read(call, tools) for call in made]


def first_messages(seen: Observation) -> list[Json]:
    """The start of the conversation: the first observation is the user's message."""
    return [{"role": "user", "content": _content(seen)}]


def result_messages(call: AgentCall, seen: Observation | str) -> list[Json]:
    """The messages that answer a call. An image follows in a user's message, since not every API takes one in a
    result."""
    text = seen if isinstance(seen, str) else seen.text
    if not call.id:
        return [{"role": "user", "content": text if isinstance(seen, str) else _content(seen)}]
    found: list[Json] = [{"role": "tool", "tool_call_id": call.id, "content": text}]
    images = [] if isinstance(seen, str) else _images(seen)
    return [*found, {"role": "user", "content": images}] if images else found


def kind_of(seen: Observation) -> str:
    """The kind of an observation in a word: screen, tree or text."""
    kinds = {part.kind for part in seen.parts}
    return "screen" if PartKind.IMAGE in kinds else "tree" if PartKind.TREE in kinds else "text"


def picture_of(seen: Observation) -> bytes:
    """The screen as a PNG, whether the agent sees it or not; empty if there is none."""
    return next((part.data for part in seen.parts if part.kind in (PartKind.IMAGE, PartKind.RECORD)), b"")


def _read(call: ToolCall, tools: Sequence[Tool]) -> AgentCall:
    if call.name not in {tool.name for tool in tools}:
        return AgentCall(call.id, None, f"There is no tool named {call.name[:80]!r}. {_offer(tools)}")
    arguments = call.parsed() if call.arguments.strip() else {}
    if not isinstance(arguments, dict):
        return AgentCall(call.id, None, f"The arguments of {call.name} are not a JSON object, so nothing was done.")
    tool = next(tool for tool in tools if tool.name == call.name)
    missing = [name for name in json_list(tool.parameters.get("required")) if name not in arguments]
    if missing:
        named = ", ".join(str(name) for name in missing[:MOST_NAMED])
        return AgentCall(call.id, None, f"The call of {call.name} lacks {named}, so nothing was done.")
    return AgentCall(call.id, Action(call.name, arguments))


def _tool_call(item: Json) -> ToolCall | None:
    function = item.get("function") if isinstance(item, dict) else None
    if not isinstance(item, dict) or not isinstance(function, dict):
        return None
    return ToolCall(str(item.get("id") or ""), str(function.get("name") or ""), str(function.get("arguments") or ""))


def _offer(tools: Sequence[Tool]) -> str:
    return f"Call one of: {', '.join(tool.name for tool in tools[:MOST_NAMED])}."


def _content(seen: Observation) -> Json:
    images = _images(seen)
    return [{"type": "text", "text": seen.text}, *images] if images else seen.text


def _images(seen: Observation) -> list[Json]:
    return [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(part.data).decode()}"}}
        for part in seen.parts
        if part.kind is PartKind.IMAGE
    ]
