"""Marks that replace private text in storage: they name the kind, and contain nothing of the text."""

from __future__ import annotations

import re
from collections import Counter
from enum import StrEnum


class Private(StrEnum):
    """The kinds of private text."""

    SECRET = "secret"  # a key, token, password or private key
    CARD = "card number"
    EMAIL = "e-mail address"


_MARK = re.compile(rf"\[masked: ({'|'.join(Private)})\]")


def mark(kind: Private) -> str:
    """The mark for this kind."""
    return f"[masked: {kind.value}]"


def marks_in(text: str) -> Counter[Private]:
    """The number of marks of each kind in a text."""
    return Counter(Private(name) for name in _MARK.findall(text))


def told(found: Counter[Private]) -> str:
    """The counts as text: "2 secrets, 1 card number"."""
    plural = {Private.SECRET: "secrets", Private.CARD: "card numbers", Private.EMAIL: "e-mail addresses"}
    return ", ".join(f"{count} {kind.value if count == 1 else plural[kind]}" for kind, count in sorted(found.items()))
