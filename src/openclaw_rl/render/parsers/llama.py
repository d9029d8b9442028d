"""Llama 3's answers: calls as objects, with or without <|python_tag|> in front; built-in tools as `name.call(...)`."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence

from openclaw_rl.core.message import Json, Tool
from openclaw_rl.render.parsers.marked import MarkedFormat, Marks
from openclaw_rl.render.parsers.objects import ObjectCall
from openclaw_rl.render.parsers.reply import Reply

MARKS = Marks("<|python_tag|>", is_bare=True)


def llama(reply: Reply, tools: Sequence[Tool] | None, *, is_thinking: bool) -> MarkedFormat:
    """The format. An object without a mark is a call only if it names an offered tool, if the tools are known."""
    names = None if tools is None else frozenset(tool.name for tool in tools)
    return MarkedFormat(MARKS, reply, lambda: _LlamaCalls(reply, names), is_thinking=is_thinking)


class _LlamaCalls:
    """One or more objects separated by semicolons, or one call of a built-in tool."""

    def __init__(self, reply: Reply, names: frozenset[str] | None) -> None:
        self.raw = ""
        self.is_over = False
        self._reply = reply
        self._names = names
        self._call: ObjectCall | None = None
        self._taken = 0  # up to here `raw` is calls
        self._is_code = False

    def feed(self, text: str) -> int:
        """The number of characters of the calls."""
        at = 0
        while at < len(text) and not self.is_over:
            if self._is_code:
                self.raw += text[at:]
                return len(text)
            at += self._object(text[at:]) if self._call is not None else self._between(text[at])
        return at

    def close(self, *, is_whole: bool) -> str | None:
        """The text after the last call; None if there is no call."""
        if self._call is not None:
            self._end(self._call)
        if self._is_code and not self._taken:
            found = _built_in(self.raw)
            if found is not None:
                self._reply.call(found[0])
                self._reply.argue(found[1])
                self._reply.end_call()
                self._taken = len(self.raw)
        return self.raw[self._taken :] if self._taken else None

    def _between(self, char: str) -> int:
        if char == "{":
            self._call = ObjectCall(self._reply, names=self._names)
            return 0
        if char.isspace() or (char == ";" and self._taken):
            self.raw += char
            return 1
        self._is_code = not self._taken
        self.is_over = bool(self._taken)
        return 0

    def _object(self, text: str) -> int:
        assert self._call is not None
        used = self._call.feed(text)
        self.raw += text[:used]
        if self._call.is_over:
            self._end(self._call)
        return used

    def _end(self, call: ObjectCall) -> None:
        self._call = None
        if call.close():
            self._taken = len(self.raw)
            self._reply.end_call()
        else:
            self.is_over = True


def _built_in(raw: str) -> tuple[str, str] | None:
    """Name and arguments of `name.call(key="value", ...)`; None for anything else, code to be run included."""
    try:
        body = ast.parse(raw.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not isinstance(body, ast.Call) or body.args or not isinstance(body.func, ast.Attribute):
        return None
    if body.func.attr != "call" or not isinstance(body.func.value, ast.Name):
        return None
    given: dict[str, Json] = {}
    for item in body.keywords:
        if item.arg is None or not isinstance(item.value, ast.Constant):
            return None
        value = item.value.value
        if not (value is None or isinstance(value, str | int | float)):
            return None
        given[item.arg] = value
    return body.func.value.id, json.dumps(given, ensure_ascii=False)
