"""The tools that requests offer, read once: an agent sends the same ones, byte for byte, with every request."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from openclaw_rl.core.message import Tool
from openclaw_rl.render.held import Held
from openclaw_rl.serve.apis.chat.wire import ToolSpec, tools_of

_KEPT, _KEPT_BYTES = 64, 4 * 1024 * 1024


class Offered:
    """Tools by the bytes that told them. Equal bytes give the very same tools, by which others know them again."""

    def __init__(self) -> None:
        self._held: Held[bytes, tuple[Tool, ...]] = Held(most=_KEPT, most_size=_KEPT_BYTES)

    def tools(self, specs: Sequence[ToolSpec], raw: msgspec.Raw) -> tuple[Tool, ...]:
        """The tools, whose JSON was `raw`. Raises RequestError for those that cannot be read."""
        told = bytes(raw)
        found = self._held.get(told)
        if found is None:
            found = tools_of(specs)
            self._held.put(told, found, size=len(told))
        return found
