"""How deeply JSON is nested, told before it is read: what is too deep would break whoever walks through it later."""

from __future__ import annotations

import re

MOST_DEPTH = 128  # far beyond any schema or arguments that were meant; Python's own walkers break near 1000
_PIECES = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]', re.DOTALL)


def is_too_deep(text: str) -> bool:
    """Whether the JSON text opens more than MOST_DEPTH lists and objects inside one another."""
    if text.count("[") + text.count("{") <= MOST_DEPTH:
        return False
    depth = 0
    for found in _PIECES.finditer(text):
        piece = found[0]
        if piece in "[{":
            depth += 1
            if depth > MOST_DEPTH:
                return True
        elif piece in "]}":
            depth -= 1
    return False
