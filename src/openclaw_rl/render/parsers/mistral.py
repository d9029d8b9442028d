"""Mistral's answers: `[TOOL_CALLS] [{...}, {...}]`, from v11 on `[TOOL_CALLS]name[ARGS]{...}`; thinking in [THINK]."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace

from openclaw_rl.core.message import Message
from openclaw_rl.render.parsers.headed import HeadedCall, Header
from openclaw_rl.render.parsers.marked import MarkedFormat, Marks
from openclaw_rl.render.parsers.objects import ObjectCall
from openclaw_rl.render.parsers.reply import Reply

MARKS = Marks("[TOOL_CALLS]", think="[THINK]", end_think="[/THINK]", inside=("[ARGS]", "[CALL_ID]"))
_HEADER = re.compile(r"\s*([^\s\[\]{}]+)\s*(?:\[CALL_ID\]\s*([0-9A-Za-z]{9})\s*)?\[ARGS\]\s*(?=\{)")
_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_NINE = re.compile(r"[0-9A-Za-z]{9}\Z")


def mistral(reply: Reply, *, is_thinking: bool) -> MarkedFormat:
    """The format. A call with an id keeps it, since results refer to it."""
    return MarkedFormat(MARKS, reply, lambda: _MistralCalls(reply), is_thinking=is_thinking)


class _MistralCalls:
    """The text after one [TOOL_CALLS]: a list of calls, each reported when complete, or one headed call."""

    def __init__(self, reply: Reply) -> None:
        self.raw = ""
        self.is_over = False
        self._reply = reply
        self._headed: HeadedCall | None = None
        self._call: ObjectCall | None = None
        self._in_list = False
        self._taken = 0  # up to here `raw` is calls

    def feed(self, text: str) -> int:
        """The number of characters of the calls."""
        at = 0
        while at < len(text) and not self.is_over:
            if self._headed is not None:
                at += self._header(self._headed, text[at:])
            elif self._call is not None:
                at += self._object(self._call, text[at:])
            else:
                at += self._between(text[at])
        return at

    def close(self, *, is_whole: bool) -> str | None:
        """The text after the last call; None if there is no call."""
        if self._headed is not None and self._headed.close(is_whole=is_whole) is not None:
            self._taken = len(self.raw)
        if self._call is not None:
            self._end(self._call)
        return self.raw[self._taken :] if self._taken else None

    def _between(self, char: str) -> int:
        if char == "{":
            self._call = ObjectCall(self._reply, waits=True)
            return 0
        is_comma = char == "," and self._in_list and self._taken
        if char.isspace() or is_comma or (char == "[" and not self._in_list and not self._taken):
            self._in_list = self._in_list or char == "["
            self.raw += char
            return 1
        if char == "]" and self._in_list:
            self.raw += char
            self._taken = len(self.raw) if self._taken else 0
            self.is_over = True
            return 1
        if self._taken or self._in_list:
            self.is_over = True
            return 0
        self._headed = HeadedCall(self._reply, _header, ends_itself=True)
        return 0

    def _header(self, headed: HeadedCall, text: str) -> int:
        used = headed.feed(text)
        self.raw += text[:used]
        self.is_over = headed.is_over
        return used

    def _object(self, call: ObjectCall, text: str) -> int:
        used = call.feed(text)
        self.raw += text[:used]
        if call.is_over:
            self._end(call)
        return used

    def _end(self, call: ObjectCall) -> None:
        self._call = None
        if call.close():
            self._taken = len(self.raw)
            self._reply.end_call()
            self.is_over = not self._in_list
        else:
            self.is_over = True


def _header(raw: str) -> Header | None:
    found = _HEADER.match(raw)
    return None if found is None else Header(found.group(1), found.end(), found.group(2))


def nine_letters(call_id: str) -> str:
    """The id itself if it is nine letters and digits, as Mistral's templates demand; else nine derived from it."""
    if _NINE.match(call_id):
        return call_id
    number = int.from_bytes(hashlib.blake2b(call_id.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
    letters: list[str] = []
    for _ in range(9):
        number, rest = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[rest])
    return "".join(letters)


def with_nine_letters(messages: Sequence[Message]) -> list[Message]:
    """The messages with every id of a call as `nine_letters` has it."""
    return [
        replace(
            item,
            tool_calls=tuple(replace(call, id=nine_letters(call.id)) for call in item.tool_calls),
            tool_call_id=None if item.tool_call_id is None else nine_letters(item.tool_call_id),
        )
        for item in messages
    ]
