"""Ids of tool calls where a format has rules for them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace

from openclaw_rl.core.message import Message

_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_NINE = re.compile(r"[0-9A-Za-z]{9}\Z")


def nine_letters(told: str) -> str:
    """The id itself where it is nine letters and digits, as Mistral's templates demand; else nine made from it."""
    if _NINE.match(told):
        return told
    number = int.from_bytes(hashlib.blake2b(told.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
    letters: list[str] = []
    for _ in range(9):
        number, rest = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[rest])
    return "".join(letters)


def with_nine_letters(messages: Sequence[Message]) -> list[Message]:
    """The messages with every id of a call as `nine_letters` has it."""
    return [
        replace(
            item,
            tool_calls=tuple(replace(call, id=nine_letters(call.id)) for call in item.tool_calls),
            tool_call_id=None if item.tool_call_id is None else nine_letters(item.tool_call_id),
        )
        for item in messages
    ]
