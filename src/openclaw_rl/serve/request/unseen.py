"""Placeholders: words in the prompt that name what a text model cannot read.

Equal bytes give equal words, whatever surrounds them: prompts are read once and conversations are recognised by
their text.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from dataclasses import dataclass, field

from openclaw_rl.core.message import Json

_KIND = re.compile(r"[^a-z0-9_.-]+")
_MARKS = re.compile(r"[\x00-\x1f\x7f\[\]]+")
_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),", re.ASCII)
_MOST_CHARS = 120  # of a name
_MOST_KIND = 40
_TEXTS = ("text/", "application/json", "application/xml")
_KILO = 1024


@dataclass(slots=True)
class Placeholders:
    """The placeholders of one request; `counts` by kind."""

    counts: Counter[str] = field(default_factory=Counter)

    def named(self, kind: str, *facts: str) -> str:
        """The words for something of this kind: `[image: image/png, 34 KB, not shown to a text model]`."""
        kind = _KIND.sub("_", kind.lower())[:_MOST_KIND] or "block"
        self.counts[kind] += 1
        held = [cleaned for fact in facts if (cleaned := _cleaned(fact))]
        return f"[{kind}: {', '.join((*held, 'not shown to a text model'))}]"

    def reference(self, kind: str, name: str) -> str:
        """The words for something that only names a thing: `[tool_reference: read_file]`."""
        self.counts[kind] += 1
        return f"[{kind}: {_cleaned(name)}]"


def data_facts(data: str, media: str = "") -> tuple[str, ...]:
    """The facts of a data URL, an address, or base64 text of this media type: its type and size, or where it is."""
    found = _DATA_URL.match(data[:400])
    if found is not None:
        size = len(data) - found.end()
        return found[1] or "text/plain", _size(_decoded_size(data) if ";base64" in found[2] else size)
    if "://" in data[:16]:
        return (data[: 4 * _MOST_CHARS].partition("?")[0].partition("#")[0],)
    return media, _size(_decoded_size(data))


def text_in(data: str, media: str = "") -> str | None:
    """The text of base64 data or of a data URL with a text type; None for anything else."""
    found = _DATA_URL.match(data[:400])
    if found is not None:
        media, data = found[1], data[found.end() :] if ";base64" in found[2] else ""
    if not data or not media.startswith(_TEXTS):
        return None
    try:
        return base64.b64decode(data, validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return None


def texts_of(held: dict[str, Json], *names: str) -> tuple[str, ...]:
    """The values of these fields that are texts."""
    return tuple(value for name in names if isinstance(value := held.get(name), str))


def own_line(placeholder: str, *, is_first: bool) -> str:
    """The placeholder on its own line among other text. Nothing that follows it changes it."""
    return f"{placeholder}\n" if is_first else f"\n{placeholder}\n"


def _cleaned(fact: str) -> str:
    return _MARKS.sub(" ", fact[: 4 * _MOST_CHARS]).strip()[:_MOST_CHARS]


def _decoded_size(data: str) -> int:
    start = data.find(",", 0, 400) + 1 if data.startswith("data:") else 0
    return (len(data) - start) * 3 // 4 - data.endswith("=") - data.endswith("==")


def _size(size_bytes: int) -> str:
    if size_bytes < _KILO:
        return f"{max(0, size_bytes)} bytes"
    if size_bytes < _KILO * _KILO:
        return f"{round(size_bytes / _KILO)} KB"
    return f"{size_bytes / _KILO / _KILO:.1f} MB"
