"""What is in a stored text where something private was: a mark that says what kind it was, and nothing of it."""

from __future__ import annotations

import re
from collections import Counter
from enum import StrEnum


class Private(StrEnum):
    """What a mark stands for."""

    SECRET = "secret"  # a key, token, password or private key
    CARD = "card number"
    EMAIL = "e-mail address"


_MARK = re.compile(rf"\[masked: ({'|'.join(Private)})\]")


def mark(kind: Private) -> str:
    """What is written in its place."""
    return f"[masked: {kind.value}]"


def marks_in(text: str) -> Counter[Private]:
    """How many marks of each kind a text holds."""
    return Counter(Private(name) for name in _MARK.findall(text))


def told(found: Counter[Private]) -> str:
    """The counts in words: "2 secrets, 1 card number"."""
    plural = {Private.SECRET: "secrets", Private.CARD: "card numbers", Private.EMAIL: "e-mail addresses"}
    return ", ".join(f"{count} {kind.value if count == 1 else plural[kind]}" for kind, count in sorted(found.items()))
