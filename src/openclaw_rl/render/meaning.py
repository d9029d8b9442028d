"""When two messages mean the same, whatever a client did to them on the way."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from openclaw_rl.core.message import Json, Message, Role, Tool

_END_THINK = "</think>"


def key_of(messages: Sequence[Message], tools: Sequence[Tool] = ()) -> str:
    """A digest of what the messages say; equal for messages that mean the same.

    Of an assistant's message white space around the text, ids of tool calls, the way arguments are written and the
    reasoning do not count: clients change or drop them. All others count to the letter, but for the ids of calls.
    """
    body: list[Json] = [_meaning(item) for item in messages]
    body.extend(tool.as_json() for tool in tools)
    written = json.dumps(body, ensure_ascii=False, sort_keys=True)
    return hashlib.blake2b(written.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def key_of_text(text: str) -> str:
    """A digest of text that belongs to no message."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _meaning(item: Message) -> list[Json]:
    if item.role is not Role.ASSISTANT:
        return [item.role.value, item.name, item.as_json()["content"] or ""]
    text = item.text.rpartition(_END_THINK)[2].strip()
    calls: list[Json] = [[call.name, call.parsed()] for call in item.tool_calls]
    return [item.role.value, text, calls]
