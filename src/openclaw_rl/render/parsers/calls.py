"""The body of one Hermes tool call, `{"name": ..., "arguments": {...}}`, read as it is written."""

from __future__ import annotations

import json
import re

from openclaw_rl.core.message import Json, ToolCall
from openclaw_rl.render.parsers.deltas import ArgumentsDelta, CallDelta, ReplyDelta

_HEADER = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(?=\{)')
_PLAIN = re.compile(r'[^"{}\[\]\\]+')


class CallBody:
    """One call between its marks.

    Once name and the opening brace of the arguments have been read, fragments are given out as they come, and the
    call stays a call with its arguments as written even where they turn out to be no JSON: what was streamed cannot be
    taken back, and clients of this API know that arguments may not parse. Anything else waits for the closing mark.
    """

    def __init__(self, index: int, call_id: str) -> None:
        self.index = index
        self.raw = ""
        self._id = call_id
        self._name: str | None = None
        self._arguments: list[str] = []
        self._depth = 0
        self._in_string = False
        self._is_escaped = False
        self._is_complete = False

    def feed(self, text: str) -> list[ReplyDelta]:
        """More of the body."""
        self.raw += text
        if self._name is not None:
            return self._more(text)
        found = _HEADER.match(self.raw)
        if found is None:
            return []
        try:
            self._name = str(json.loads(found.group(1), strict=False))
        except ValueError:  # a name with a broken escape: whole calls alone can be judged
            return []
        return [CallDelta(self.index, self._id, self._name), *self._more(self.raw[found.end() :])]

    def close(self) -> list[ReplyDelta] | None:
        """What is left to say once the call has ended; None where the body is no call."""
        if self._name is not None:
            return []
        body = _parsed(self.raw)
        if body is None or not isinstance(body.get("name"), str):
            return None
        given = body.get("arguments", body.get("parameters", {}))
        if isinstance(given, str):
            given = _parsed(given)
        if given is None:
            given = {}
        if not isinstance(given, dict):
            return None
        self._name = str(body["name"])
        self._arguments = [json.dumps(given, ensure_ascii=False)]
        return [CallDelta(self.index, self._id, self._name), ArgumentsDelta(self.index, self._arguments[0])]

    def call(self) -> ToolCall | None:
        """The call as far as it was written."""
        return None if self._name is None else ToolCall(self._id, self._name, "".join(self._arguments))

    def _more(self, text: str) -> list[ReplyDelta]:
        used = self._used(text)
        if not used:
            return []
        self._arguments.append(used)
        return [ArgumentsDelta(self.index, used)]

    def _used(self, text: str) -> str:
        """The part of the text that belongs to the arguments' object."""
        at = 0
        while at < len(text) and not self._is_complete:
            if not self._is_escaped and (plain := _PLAIN.match(text, at)):
                at = plain.end()
                continue
            self._step(text[at])
            at += 1
        return text[:at]

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
            self._is_complete = self._depth == 0


def _parsed(text: str) -> dict[str, Json] | None:
    try:
        body = json.loads(text, strict=False)
    except ValueError:
        return None
    return body if isinstance(body, dict) else None
