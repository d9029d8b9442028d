"""Requests as they come over the wire: bodies of the three APIs, read as the server reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from conversation import Served

from openclaw_rl.core.message import Json, Message, ToolCall, message
from openclaw_rl.core.turn import Arrival, Placement, Turn
from openclaw_rl.serve.apis.chat.wire import ChatBody, facts_of, fields_of, messages_of, parsed, tools_of
from openclaw_rl.serve.apis.messages.route import told_by
from openclaw_rl.serve.apis.messages.wire import MessagesBody, conversation_of, offered
from openclaw_rl.serve.request.unseen import Placeholders
from openclaw_rl.testing.turns import a_turn

TURNS = iter(range(10_000))
BASH: dict[str, Json] = {"name": "bash", "description": "Runs a command.", "parameters": {"type": "object"}}
TOOLS: list[Json] = [{"type": "function", "function": BASH}]
CLAUDE_TOOLS: list[Json] = [{"name": "Bash", "description": "Runs a command.", "input_schema": {"type": "object"}}]


def chat(
    *said: tuple[str, str] | Mapping[str, Json],
    system: str = "",
    tools: Sequence[Json] = (),
    headers: Mapping[str, str] | None = None,
    **fields: Json,
) -> Arrival:
    """A request of the chat API."""
    messages: list[Json] = [{"role": "system", "content": system}] if system else []
    messages += [{"role": each[0], "content": each[1]} if isinstance(each, tuple) else dict(each) for each in said]
    body: dict[str, Json] = {"model": "default", "messages": messages, **fields}
    raw = json.dumps(body | ({"tools": list(tools)} if tools else {})).encode()
    read = parsed(raw, ChatBody)
    facts = facts_of(fields_of(raw)[1])
    return _arrival(
        messages_of(read.messages, Placeholders()), tuple(tools_of(read.tools or ())), headers, facts, read.max_tokens
    )


def anthropic(
    *said: tuple[str, Json],
    system: str = "",
    tools: Sequence[Json] = (),
    headers: Mapping[str, str] | None = None,
    **fields: Json,
) -> Arrival:
    """A request of Anthropic's API."""
    body: dict[str, Json] = {"model": "default", "max_tokens": 1000, **fields}
    body["messages"] = [{"role": role, "content": content} for role, content in said]
    body |= {"system": [{"type": "text", "text": system}]} if system else {}
    raw = json.dumps(body | ({"tools": list(tools)} if tools else {})).encode()
    read = parsed(raw, MessagesBody)
    facts = told_by(facts_of(fields_of(raw)[1]))
    return _arrival(conversation_of(read, Placeholders()), offered(read), headers, facts, read.max_tokens)


async def send(served: Served, arrival: Arrival, answer: Message | str) -> tuple[Turn, Placement]:
    """One request from its coming in to its turn's being in the store."""
    placement = await served.collect.place(arrival)
    await placement.admit()
    turn = a_turn(
        f"wire-{next(TURNS):04d}",
        arrival.messages,
        answer,
        session=placement.session,
        user=placement.user,
        kind=placement.kind,
        tools=arrival.tools,
        parent=None if placement.parent is None else placement.parent.id,
    )
    turn = replace(turn, messages=arrival.messages, why=placement.why)
    await served.collect.commit(turn)
    return turn, placement


def calling(name: str, arguments: str, call: str, text: str = "") -> Message:
    """A reply that makes a call."""
    return replace(message("assistant", text), tool_calls=(ToolCall(call, name, arguments),))


def called(name: str, arguments: str, call: str) -> dict[str, Json]:
    """The same as it stands in a history of the chat API."""
    function: Json = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call, "type": "function", "function": function}],
    }


def result(call: str, text: str) -> dict[str, Json]:
    """What a tool gave back."""
    return {"role": "tool", "tool_call_id": call, "content": text}


def _arrival(
    messages: tuple[Message, ...],
    tools: tuple[object, ...],
    headers: Mapping[str, str] | None,
    facts: Mapping[str, Json],
    most: int | None,
) -> Arrival:
    lower = {name.lower(): value for name, value in (headers or {}).items()}
    return Arrival(messages, tools, lower, facts, "key", 1000.0, most)  # type: ignore[arg-type]
