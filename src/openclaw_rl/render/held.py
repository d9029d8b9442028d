"""What rendering keeps of recent requests, limited in number and total size: any values, and tools as templates see
them, each with its JSON text.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from threading import Lock
from typing import Generic, TypeVar

from openclaw_rl.core.message import Json, Tool

_KEPT, _KEPT_CHARS = 64, 4_000_000  # tools
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """Values by key; the least recently used is dropped. Thread-safe.

    A value larger than the whole limit is not stored.
    """

    def __init__(self, *, most: int, most_size: int) -> None:
        self._most = most
        self._most_size = most_size
        self._held: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._lock = Lock()
        self.size = 0

    def __len__(self) -> int:
        """The number of values."""
        return len(self._held)

    def let_go(self) -> None:
        """Drops all values."""
        with self._lock:
            self._held.clear()
            self.size = 0

    def get(self, key: Key) -> Value | None:
        """The value of this key."""
        with self._lock:
            found = self._held.get(key)
            if found is None:
                return None
            self._held.move_to_end(key)
            return found[0]

    def put(self, key: Key, value: Value, *, size: int) -> None:
        """Stores a value, in place of the earlier one of this key."""
        with self._lock:
            before = self._held.pop(key, None)
            if before is not None:
                self.size -= before[1]
            if size > self._most_size:
                return
            self._held[key] = value, size
            self.size += size
            while len(self._held) > self._most or self.size > self._most_size:
                self.size -= self._held.popitem(last=False)[1][1]


class CachedJson(dict[str, Json]):
    """A mapping that remembers its JSON text. It must not be changed; the sandbox prevents templates from doing so.

    Templates ask whether a tool is a mapping, so it is one and does not contain one.
    """

    __slots__ = ("_texts",)

    def __init__(self, held: dict[str, Json]) -> None:
        super().__init__(held)
        self._texts: dict[tuple[bool, int | None, tuple[str, str] | None, bool], str] = {}

    @property
    def size(self) -> int:
        """The number of letters cached."""
        return sum(len(text) for text in self._texts.values())

    def text(self, ensure_ascii: bool, indent: int | None, separators: tuple[str, str] | None, sort_keys: bool) -> str:
        """The JSON text in this format."""
        asked = (ensure_ascii, indent, separators and (separators[0], separators[1]), sort_keys)
        found = self._texts.get(asked)
        if found is None:
            found = self._texts[asked] = json.dumps(
                self, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
            )
        return found


class KnownTools:
    """The tools of recent requests as templates see them. A request with the same tools finds their texts.

    Tools are identified by object identity, which the reader of requests keeps for equal tools. Equal tools that are
    not the same object are written again. Thread-safe.
    """

    def __init__(self) -> None:
        self._held: BoundedCache[int, tuple[Sequence[Tool], list[Json]]] = BoundedCache(
            most=_KEPT, most_size=_KEPT_CHARS
        )

    def told(self, tools: Sequence[Tool]) -> list[Json]:
        """The tools in OpenAI's shape."""
        if not tools:
            return []
        found = self._held.get(id(tools))
        return found[1] if found is not None and found[0] is tools else [_told(tool) for tool in tools]

    def keep(self, tools: Sequence[Tool], told: list[Json]) -> None:
        """Caches them if the template wrote any as JSON; `tools` are referenced too, so that their ids stay unique."""
        if not tools or not isinstance(tools, tuple):
            return
        found = self._held.get(id(tools))
        if found is None or found[0] is not tools:
            size = sum(_size(tool) for tool in told)
            if size:
                self._held.put(id(tools), (tools, told), size=size)


def _told(tool: Tool) -> CachedJson:
    body = tool.as_json()
    function = body["function"]
    assert isinstance(function, dict)
    parameters = function["parameters"]
    assert isinstance(parameters, dict)
    return CachedJson({**body, "function": CachedJson({**function, "parameters": CachedJson(parameters)})})


def _size(value: Json) -> int:
    """Letters cached of a tool and its parts."""
    if not isinstance(value, CachedJson):
        return 0
    return value.size + sum(_size(held) for held in value.values())
