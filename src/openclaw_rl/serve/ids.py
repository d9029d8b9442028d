"""Turn ids: 32 hex digits that sort by time and never repeat (the layout of UUID version 7)."""

from __future__ import annotations

import os
import time

_PREFIXES = ("chatcmpl-", "cmpl-", "resp_", "msg_")


def new_turn_id() -> str:
    """48 bits of milliseconds, version and variant, 74 random bits."""
    milliseconds = time.time_ns() // 1_000_000
    chance = int.from_bytes(os.urandom(10), "big")
    high, low = chance >> 62 & 0xFFF, chance & (1 << 62) - 1
    return f"{milliseconds:012x}{0x7000 | high:04x}{0x8000000000000000 | low:016x}"


def turn_of_response(response: str) -> str:
    """The turn that a response id names, whichever API gave it out."""
    for prefix in _PREFIXES:
        if response.startswith(prefix):
            return response.removeprefix(prefix)
    return response
