"""Calls whose arguments are in tags, one key and value each, as text instead of JSON: GLM and Qwen3-Coder."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openclaw_rl.core.message import Json, Tool
from openclaw_rl.render.parsers.marked import MarkedFormat, Marks
from openclaw_rl.render.parsers.reply import Reply


@dataclass(frozen=True, slots=True)
class Tags:
    """The format of one family.

    `head` matches up to the first pair and captures the name, `key` the start of a pair and its key, and
    `closes` ends its value. `foot` matches all that may follow the last pair. With `has_lines` a new line on
    either side of a value belongs to the format.
    """

    head: re.Pattern[str]
    key: re.Pattern[str]
    closes: str
    foot: re.Pattern[str]
    has_lines: bool = False


_GLM = Tags(
    head=re.compile(r"\s*([^<>\s]+)\s*"),
    key=re.compile(r"\s*<arg_key>((?:(?!</arg_key>).)*)</arg_key>\s*<arg_value>", re.DOTALL),
    closes="</arg_value>",
    foot=re.compile(r"\s*"),
)
_GLM_MARKS = Marks("<tool_call>", "</tool_call>", inside=("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"))
_QWEN = Tags(
    head=re.compile(r"\s*<function=([^<>\s]+)>\s*(?:</function>\s*)?"),
    key=re.compile(r"\s*<parameter=([^<>\n]+)>"),
    closes="</parameter>",
    foot=re.compile(r"\s*(?:</function>\s*)?"),
    has_lines=True,
)
_QWEN_MARKS = Marks("<tool_call>", "</tool_call>")


def glm(reply: Reply, tools: Sequence[Tool] | None, *, is_thinking: bool) -> MarkedFormat:
    """GLM-4.5: <tool_call>name <arg_key>k</arg_key> <arg_value>v</arg_value></tool_call>."""
    return MarkedFormat(_GLM_MARKS, reply, lambda: TaggedCall(reply, _GLM, tools), is_thinking=is_thinking)


def qwen_coder(reply: Reply, tools: Sequence[Tool] | None, *, is_thinking: bool) -> MarkedFormat:
    """Qwen3-Coder: <function=name>, <parameter=key> value </parameter>, </function>."""
    return MarkedFormat(_QWEN_MARKS, reply, lambda: TaggedCall(reply, _QWEN, tools), is_thinking=is_thinking)


class TaggedCall:
    """One such call, its arguments turned into JSON pair by pair.

    A value is text if the tool's schema says so, or if it is not JSON; else it is the JSON as written. Text that
    is cut or broken after the first pair leaves the arguments' object open, so that it is not taken for a whole call.
    """

    def __init__(self, reply: Reply, tags: Tags, tools: Sequence[Tool] | None) -> None:
        self.raw = ""
        self.is_over = False
        self._reply = reply
        self._tags = tags
        self._tools = tools or ()
        self._name: str | None = None  # as read from the text
        self._is_call = False  # reported
        self._at = 0
        self._key: str | None = None
        self._looked = 0  # no value ends before this position
        self._pairs = 0

    def feed(self, text: str) -> int:
        """The whole text belongs to the call."""
        self.raw += text
        while self._step():
            pass
        return len(text)

    def close(self, *, is_whole: bool) -> str | None:
        """Empty: a call leaves no rest; None if it is not a call."""
        if self._name is None:
            found = self._tags.head.fullmatch(self.raw)
            if found is None:
                return None
            self._name, self._at = found.group(1), found.end()
        is_right = is_whole and self._key is None and self._tags.foot.fullmatch(self.raw, self._at) is not None
        if not self._is_call and not is_right:
            return None
        if is_right:
            self._give("{}" if not self._pairs else "}")
        return ""

    def _step(self) -> bool:
        tags = self._tags
        if self._name is None:
            found = tags.head.match(self.raw)
            if found is None or not tags.key.match(self.raw, found.end()):
                return False
            self._name, self._at = found.group(1), found.end()
        if self._key is None:
            found = tags.key.match(self.raw, self._at)
            if found is None:
                return False
            self._key, self._at = found.group(1), found.end()
            self._looked = self._at
        end = self.raw.find(tags.closes, self._looked)
        if end < 0:
            self._looked = max(self._at, len(self.raw) - len(tags.closes))
            return False
        self._pair(self._key, self.raw[self._at : end])
        self._key, self._at = None, end + len(tags.closes)
        return True

    def _pair(self, key: str, value: str) -> None:
        if self._tags.has_lines:
            value = value.removeprefix("\n").removesuffix("\n")
        start = ", " if self._pairs else "{"
        self._give(f"{start}{json.dumps(key, ensure_ascii=False)}: {self._json(key, value)}")
        self._pairs += 1

    def _give(self, text: str) -> None:
        if not self._is_call:
            self._is_call = True
            self._reply.call(self._name or "")
        self._reply.argue(text)

    def _json(self, key: str, value: str) -> str:
        if self._type_of(key) != "string":
            try:
                read: Json = json.loads(value, parse_constant=_refuse)
            except (ValueError, RecursionError):
                read = value
            if not isinstance(read, str):
                return value.strip()
        return json.dumps(value, ensure_ascii=False)

    def _type_of(self, key: str) -> Json:
        """The tool's schema of this argument; None if there is none."""
        schema = next((tool.parameters for tool in self._tools if tool.name == self._name), None)
        properties = None if schema is None else schema.get("properties")
        told = properties.get(key) if isinstance(properties, Mapping) else None
        return told.get("type") if isinstance(told, Mapping) else None


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")
