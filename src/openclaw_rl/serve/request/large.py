"""Large bodies: read outside the event loop, and a piece at a time.

A JSON library holds the interpreter until it has finished, and meanwhile every stream stands still. Text is parsed at a
gigabyte a second, but a list of a million small objects takes half a second. So a large body is parsed in a thread, and
its long list a few objects at a time.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import msgspec

from openclaw_rl.errors import ContextError, RequestError
from openclaw_rl.serve.apis.chat.wire import parsed

LARGE_BYTES = 262_144  # less is parsed at once, in a few milliseconds
MOST_PARAMETER_BYTES = 2 * 1024 * 1024
MOST_COUNTED = 1_000_000  # messages, if they are only counted
CONVERSATION = frozenset({"messages", "input", "prompt", "system", "instructions"})  # may be as long as the body
_STRUCTURE = re.compile(rb'[\[\]{},"]')
_WHERE = re.compile(r"at `\$\[(\d+)\]")

Body = TypeVar("Body")
Result = TypeVar("Result")


async def beside(size_bytes: int, work: Callable[[], Result]) -> Result:
    """The result of `work`, which runs in a thread if there are many bytes."""
    return work() if size_bytes < LARGE_BYTES else await asyncio.to_thread(work)


def check_sizes(fields: Mapping[str, msgspec.Raw]) -> None:
    """Raises RequestError for a parameter outside the conversation that is too long to be intended."""
    for name, raw in fields.items():
        size = memoryview(raw).nbytes
        if size > MOST_PARAMETER_BYTES and name not in CONVERSATION:
            raise RequestError(
                f"{name} has {size} bytes",
                fix=f"send at most {MOST_PARAMETER_BYTES} bytes, not counting the conversation",
                code="parameter_too_large",
                param=name,
            )


def parsed_in_pieces(
    body: bytes, fields: Mapping[str, msgspec.Raw], kind: type[Body], name: str, item: type, *, most: int
) -> Body:
    """As `parsed`, but if the body is large, the list `name` of `item`s is parsed a piece at a time.

    Raises ContextError if the list has more than `most` items: each is at least a token of the model's context.
    """
    held = bytes(fields[name]) if name in fields else b""
    if len(body) < LARGE_BYTES or not held.startswith(b"["):
        return parsed(body, kind)
    others = {key: raw for key, raw in fields.items() if key != name}
    found = parsed(msgspec.json.encode({**others, name: []}), kind)
    items: list[object] = []
    for piece in pieces(held):
        try:
            items += parsed(piece, list[item])  # type: ignore[valid-type]
        except msgspec.ValidationError as problem:
            raise msgspec.ValidationError(_renumbered(str(problem), name, len(items))) from problem
        if len(items) > most:
            raise ContextError(len(items), most, param=name)
    setattr(found, name, items)
    return found


def check_ids(raw: msgspec.Raw, most: int) -> None:
    """Raises ContextError if a prompt of ids has more than fit the context, before they are parsed."""
    text = bytes(raw)
    if len(text) >= LARGE_BYTES and text.startswith(b"[") and b'"' not in text and text.count(b",") >= most:
        raise ContextError(text.count(b",") + 1, most, param="prompt")


def pieces(array: bytes, size: int = LARGE_BYTES) -> Iterator[bytes]:
    """A JSON array as several smaller ones, in order; each but the last ends at the item that reaches `size` bytes."""
    start, depth, at = 1, 0, 0
    while (found := _STRUCTURE.search(array, at)) is not None:
        mark, at = found[0], found.end()
        if mark == b'"':
            at = _string_end(array, at)
        elif mark in b"[{":
            depth += 1
        elif mark in b"]}":
            depth -= 1
        elif depth == 1 and at - start > size:
            yield b"[%b]" % array[start : at - 1]
            start = at
    yield b"[" + array[start:]


def _string_end(array: bytes, at: int) -> int:
    """The end of the string whose text begins at `at`: after the first quote with an even number of backslashes."""
    while (end := array.find(b'"', at)) >= 0:
        slashes = 0
        while array[end - 1 - slashes] == 0x5C:
            slashes += 1
        at = end + 1
        if slashes % 2 == 0:
            return at
    return len(array)


def _renumbered(problem: str, name: str, before: int) -> str:
    return _WHERE.sub(lambda found: f"at `$.{name}[{int(found[1]) + before}]", problem)
