"""What an answer carries besides its text: the ids of turns, headers, and log-probabilities."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence

from openclaw_rl.core.completion import SampledToken
from openclaw_rl.core.message import Json
from openclaw_rl.render.encoding import TokenBytes

_PREFIXES = ("chatcmpl-", "cmpl-", "resp_", "msg_")
TURN = "x-openclaw-rl-turn"
VERSION = "x-openclaw-rl-version"
IGNORED = "x-openclaw-rl-ignored"
PLACEHOLDERS = "x-openclaw-rl-placeholders"
_OTHERS = re.compile(r"[^A-Za-z0-9_.\-]+")
_MOST_CHARS = 64  # of a name; clients choose them
_MOST_NAMES = 32
LEAST_LOGP = -9999.0  # JSON has no minus infinity


def new_turn_id() -> str:
    """32 hex digits that sort by time and never repeat: the layout of UUID version 7.

    48 bits of milliseconds, version and variant, 74 random bits.
    """
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


def note_headers(ignored: Sequence[str], placeholders: Mapping[str, int]) -> dict[str, str]:
    """Headers that list the ignored parameters and the placeholders in the prompt; none if there are none."""
    found: dict[str, str] = {}
    if ignored:
        found[IGNORED] = _listed([_safe(name) for name in dict.fromkeys(ignored)])
    if placeholders:
        found[PLACEHOLDERS] = _listed([f"{_safe(kind)}={count}" for kind, count in sorted(placeholders.items())])
    return found


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f", and {more} more" if more > 0 else "")


def _safe(name: str) -> str:
    return _OTHERS.sub("_", name)[:_MOST_CHARS] or "_"


def token_entries(sampled: Sequence[SampledToken], table: TokenBytes) -> list[Json]:
    """Log-probabilities as OpenAI's clients know them, of the model at temperature 1: one entry for each token.

    Tokens of the format's own ending have no entry.
    """
    return [
        {
            **_entry(item.token, item.logp, table),
            "top_logprobs": [_entry(token, logp, table) for token, logp in item.top],
        }
        for item in sampled
        if item.finish is None or item.token not in table.special
    ]


def _entry(token: int, logp: float, table: TokenBytes) -> dict[str, Json]:
    held = table(token)
    return {"token": held.decode("utf-8", "replace"), "logprob": max(logp, LEAST_LOGP), "bytes": list(held)}
