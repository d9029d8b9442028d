"""What stands between quotation marks, of whatever kind."""

from __future__ import annotations

import re

_QUOTED = re.compile(
    '"([^"]+)"|“([^”“]+)[”“]|„([^“”]+)[“”]|«([^»]+)»|‹([^›]+)›|「([^」]+)」|『([^』]+)』|‘([^’]+)’(?!\\w)|`([^`]+)`'
    "|(?<!\\w)'([^']+)'(?!\\w)"
)


def quoted(text: str) -> list[str]:
    """The quoted parts of a text, in their order."""
    return [next(part for part in found.groups() if part) for found in _QUOTED.finditer(text)]


def without_quotes(text: str) -> str:
    """The text with a blank in the place of each quoted part."""
    return _QUOTED.sub(" ", text)
