"""Incremental JSON: the end of an object, a call written as an object, and the answers with such calls."""

from __future__ import annotations

import json
import re
from collections.abc import Collection

from openclaw_rl.core.message import Json
from openclaw_rl.render.parsers.marked import MarkedFormat, Marks
from openclaw_rl.render.parsers.reply import Reply

_HEADER = re.compile(
    r'\s*\{\s*(?:"(?:type|id)"\s*:\s*"[^"\\]*"\s*,\s*)*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,'
    r'\s*"(?:arguments|parameters)"\s*:\s*(?=\{)'
)
_FIRST_KEY = re.compile(r'\s*\{\s*"((?:[^"\\]|\\.)*)"')
_HERMES = Marks("<tool_call>", "</tool_call>")
_KEYS = frozenset({"name", "arguments", "parameters", "id", "type", "function"})
_PLAIN = re.compile(r'[^"{}\[\]\\]+')
_HEADER_CHARS = 1000  # a call without a name by then is read when complete


class Braces:
    """Finds the end of one object or list, in pieces of any size."""

    def __init__(self) -> None:
        self.is_complete = False
        self._depth = 0
        self._in_string = False
        self._is_escaped = False

    def feed(self, text: str) -> int:
        """The number of its characters."""
        at = 0
        while at < len(text) and not self.is_complete:
            if not self._is_escaped and (plain := _PLAIN.match(text, at)):
                at = plain.end()
                continue
            self._step(text[at])
            at += 1
        return at

    def _step(self, char: str) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif self._in_string:
            self._is_escaped = char == "\\"
            self._in_string = char != '"'
        elif char == '"':
            self._in_string = True
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            self._depth -= 1
            self.is_complete = self._depth <= 0


class ObjectCall:
    """One call, `{"name": ..., "arguments": {...}}`; the key may be `parameters` as well.

    After the name and the opening brace of the arguments, fragments are reported as they come, and the
    call stays a call with its arguments as written even if they turn out not to be JSON: what was streamed cannot be
    withdrawn, and clients of this API know that arguments may not parse. Anything else is decided when complete.
    With `waits` everything is, for formats that write the id last.
    """

    def __init__(self, reply: Reply, *, names: Collection[str] | None = None, waits: bool = False) -> None:
        self.raw = ""
        self.is_call = False
        self._reply = reply
        self._names = names
        self._waits = waits
        self._outer = Braces()
        self._inner = Braces()

    @property
    def is_over(self) -> bool:
        """Whether its object is complete, or cannot become a call any more."""
        return self._outer.is_complete or (not self.is_call and self._is_hopeless())

    def feed(self, text: str) -> int:
        """The number of characters of the object."""
        if not self.raw.strip() and text.strip() and not (self.raw + text).lstrip().startswith("{"):
            self.raw += text
            return len(text)
        used = self._outer.feed(text)
        piece = text[:used]
        self.raw += piece
        if self.is_call:
            self._reply.argue(piece[: self._inner.feed(piece)])
        elif not self._waits and len(self.raw) - len(piece) < _HEADER_CHARS:
            self._begin()
        return used

    def close(self) -> bool:
        """Whether it is a call, when complete or no more text comes."""
        if self.is_call:
            return True
        if self._waits and self._outer.is_complete and self._begin(_id_in(self.raw)):
            return True
        body = _object(self.raw)
        if body is None:
            return False
        given = body.get("arguments", body.get("parameters", {}))
        if isinstance(given, str):
            given = _object(given)
        if given is None:
            given = {}
        if not isinstance(given, dict) or not self._is_name(body.get("name")):
            return False
        self.is_call = True
        self._reply.call(str(body["name"]), _id_in(self.raw) if self._waits else None)
        self._reply.argue(json.dumps(given, ensure_ascii=False))
        return True

    def _begin(self, call_id: str | None = None) -> bool:
        """Reports name and arguments as far as written, if they begin as expected."""
        found = _HEADER.match(self.raw)
        if found is None:
            return False
        try:
            name: Json = json.loads(found.group(1), strict=False)
        except ValueError:  # a name with a broken escape: only complete calls can be decided
            return False
        if not self._is_name(name):
            return False
        self.is_call = True
        self._reply.call(str(name), call_id)
        rest = self.raw[found.end() :]
        self._reply.argue(rest[: self._inner.feed(rest)])
        return True

    def _is_name(self, name: Json) -> bool:
        return isinstance(name, str) and bool(name) and (self._names is None or name in self._names)

    def _is_hopeless(self) -> bool:
        start = self.raw.lstrip()
        if not start:
            return False
        if not start.startswith("{") or start[1:].lstrip()[:1] not in ("", '"'):
            return True
        key = _FIRST_KEY.match(self.raw)
        if key is not None and key.group(1) not in _KEYS:
            return True
        found = None if self._names is None else _HEADER.match(self.raw)
        return found is not None and self._names is not None and found.group(1)[1:-1] not in self._names


def hermes(reply: Reply, *, is_thinking: bool) -> MarkedFormat:
    """Hermes-style ChatML (Qwen and many others): <think>...</think>, text, <tool_call>{json}</tool_call>."""
    return MarkedFormat(_HERMES, reply, lambda: _HermesCall(reply), is_thinking=is_thinking)


class _HermesCall:
    """One object between its marks; text after it is left out."""

    def __init__(self, reply: Reply) -> None:
        self.raw = ""
        self.is_over = False
        self._call = ObjectCall(reply)

    def feed(self, text: str) -> int:
        """The whole text belongs to the call."""
        self.raw += text
        self._call.feed(text)
        return len(text)

    def close(self, *, is_whole: bool) -> str | None:
        """Empty: a call leaves no rest; None if it is not a call."""
        return "" if self._call.close() else None


def _object(text: str) -> dict[str, Json] | None:
    try:
        body = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _id_in(raw: str) -> str | None:
    body = _object(raw)
    call_id = None if body is None else body.get("id")
    return (
        call_id if isinstance(call_id, str) and call_id.isascii() and call_id.isalnum() and len(call_id) == 9 else None
    )
