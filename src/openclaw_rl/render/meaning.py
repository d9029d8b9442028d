"""When two messages mean the same, whatever a client did to them on the way."""

from __future__ import annotations

import hashlib
import json

from openclaw_rl.core.message import Json, Message, Role

_END_THINK = "</think>"
_MOST_EXACT = 2**53  # a client that reads numbers as doubles keeps whole ones up to here


def key_of(item: Message) -> str:
    """A digest of what the message says; equal for messages that mean the same.

    Of an assistant's message white space around the text and at the ends of lines, ids of tool calls, the way arguments
    are written (numbers included) and the reasoning do not count: clients change or drop them. All others count to the
    letter, but for the ids of calls.
    """
    written = json.dumps(_meaning(item), ensure_ascii=False, sort_keys=True)
    return hashlib.blake2b(written.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _meaning(item: Message) -> list[Json]:
    if item.role is not Role.ASSISTANT:
        return [item.role.value, item.name, item.as_json()["content"] or ""]
    lines = item.text.rpartition(_END_THINK)[2].strip().splitlines()
    calls: list[Json] = [[call.name, _plain(call.parsed())] for call in item.tool_calls]
    return [item.role.value, "\n".join(line.rstrip() for line in lines), calls]


def _plain(value: Json) -> Json:
    """The value with numbers as a client gives them back that knows only doubles: 1.0 is 1."""
    if isinstance(value, dict):
        return {key: _plain(held) for key, held in value.items()}
    if isinstance(value, list):
        return [_plain(held) for held in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= _MOST_EXACT else value
    return value if abs(value) <= _MOST_EXACT else _as_double(value)


def _as_double(value: int) -> Json:
    try:
        return float(value)
    except OverflowError:
        return str(value)
