"""The headers of an answer: its turn, its version, what of the request had no effect, what stood there by name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

TURN = "x-openclaw-rl-turn"
VERSION = "x-openclaw-rl-version"
IGNORED = "x-openclaw-rl-ignored"
PLACEHOLDERS = "x-openclaw-rl-placeholders"
_OTHERS = re.compile(r"[^A-Za-z0-9_.\-]+")
_MOST_CHARS = 64  # of a name; clients choose them
_MOST_NAMES = 32


def note_headers(ignored: Sequence[str], placeholders: Mapping[str, int]) -> dict[str, str]:
    """The headers; none where there is nothing to say."""
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
