"""Nouns to bytes and back, exactly: blobs with a checksum, ids as little-endian int32, everything else as JSON.

JSON is written as UTF-8 with surrogates passed through, so that a lone surrogate a client sent comes back as it was.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from openclaw_rl.core.message import Json, Message, TextPart, Tool, from_json
from openclaw_rl.errors import DamageError

PACK_FROM_BYTES = 512  # below it zlib saves too little for its time
LONG_TEXT_CHARS = 2048  # longer messages are stored once, under their digest
SLICE_CHARS, SLICE_ITEMS = 1_000_000, 256  # more is written as JSON a slice at a time

_HEAD = struct.Struct("<BI")
_RAW, _ZLIB = 0, 1


def pack(data: bytes) -> bytes:
    """The bytes after a flag and a CRC-32, compressed if that saves a tenth or more."""
    if len(data) >= PACK_FROM_BYTES:
        small = zlib.compress(data, 1)
        if len(small) < 0.9 * len(data):
            return _HEAD.pack(_ZLIB, zlib.crc32(small)) + small
    return _HEAD.pack(_RAW, zlib.crc32(data)) + data


def unpack(blob: bytes) -> bytes:
    """The reverse of `pack`. Raises DamageError if the bytes have changed since they were written."""
    if len(blob) < _HEAD.size:
        raise damaged("a record is cut short")
    flag, check = _HEAD.unpack_from(blob)
    body = blob[_HEAD.size :]
    if zlib.crc32(body) != check or flag not in (_RAW, _ZLIB):
        raise damaged("a record fails its checksum")
    return zlib.decompress(body) if flag == _ZLIB else body


def damaged(what: str, path: Path | None = None) -> DamageError:
    """The error for a store whose bytes have changed, in one line: SQLite's messages may have several."""
    words = "; ".join(
        line.strip(" *") for line in what.splitlines() if line.strip(" *") not in ("", "in database main")
    )
    return DamageError(
        f"the store {'' if path is None else f'{path} '}is damaged: {words}",
        fix="stop the server and run `openclaw-rl check --repair`, which repairs what it can, or "
        "move store.db and store.db-wal "
        "away and restore a backup",
    )


@contextmanager
def reading(what: str) -> Iterator[None]:
    """A context whose errors mean that bytes changed since they were written. Raises StoreError."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AssertionError, OverflowError, struct.error, zlib.error) as problem:
        raise damaged(f"{what} cannot be read ({type(problem).__name__}: {problem})") from problem


def plain(text: str) -> str:
    """The text in a form that SQLite can store: lone surrogates become escapes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def pack_json(value: Json) -> bytes:
    """JSON, packed."""
    return pack(json_bytes(value))


def unpack_json(blob: bytes) -> Json:
    """The reverse of `pack_json`."""
    return json_of(unpack(blob))


def json_bytes(value: Json) -> bytes:
    """JSON as UTF-8 in which surrogates survive; a large value is written a slice at a time.

    The library holds the interpreter until it has written the whole value.
    """
    return _sliced(value) if _is_much(value) else _dumped(value)


def json_of(data: bytes) -> Json:
    """The reverse of `json_bytes`."""
    value: Json = json.loads(data.decode("utf-8", "surrogatepass"))
    return value


def ids_bytes(ids: Sequence[int]) -> bytes:
    """Token ids as little-endian int32."""
    held = array("i", ids)
    _swap(held)
    return held.tobytes()


def ids_of(data: bytes) -> tuple[int, ...]:
    """The reverse of `ids_bytes`."""
    held = array("i")
    held.frombytes(data)
    _swap(held)
    return tuple(held)


def floats_bytes(values: Sequence[float]) -> bytes:
    """Float32 if that loses nothing, as engines mostly sample in it, else float64; the first byte says which."""
    held = array("f", values)
    kind = b"f"
    if tuple(held) != tuple(values):
        held = array("d", values)
        kind = b"d"
    _swap(held)
    return kind + held.tobytes()


def floats_of(data: bytes) -> tuple[float, ...]:
    """The reverse of `floats_bytes`."""
    held = array("f" if data[:1] == b"f" else "d")
    held.frombytes(data[1:])
    _swap(held)
    return tuple(held)


def joined(pieces: Sequence[bytes]) -> bytes:
    """Several byte strings as one, for `split`."""
    return struct.pack(f"<I{len(pieces)}I", len(pieces), *map(len, pieces)) + b"".join(pieces)


def split(data: bytes) -> list[bytes]:
    """The reverse of `joined`."""
    (count,) = struct.unpack_from("<I", data)
    sizes = struct.unpack_from(f"<{count}I", data, 4)
    pieces, at = [], 4 + 4 * count
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    return pieces


def message_json(item: Message) -> dict[str, Json]:
    """The message in OpenAI's shape; several parts stay separate."""
    body = item.as_json()
    if len(item.content) > 1:
        body["content"] = [
            {"type": "text", "text": part.text}
            if isinstance(part, TextPart)
            else {"type": "image_url", "image_url": {"url": part.url}}
            for part in item.content
        ]
    return body


def messages_json(items: Sequence[Message], keep: Callable[[bytes], str]) -> list[Json]:
    """The messages; `keep` stores the bytes of a long one and returns the name that replaces it."""
    return [keep(json_bytes(message_json(item))) if _is_long(item) else message_json(item) for item in items]


def messages_of(held: Json, find: Callable[[str], bytes]) -> tuple[Message, ...]:
    """The reverse of `messages_json`; `find` returns the bytes of a name."""
    return tuple(_message_of(json_of(find(item)) if isinstance(item, str) else item) for item in listed(held))


def tools_json(tools: Sequence[Tool], keep: Callable[[bytes], str]) -> Json:
    """The tools a request offered, under one name since later requests repeat them unchanged."""
    if not tools:
        return None
    return keep(json_bytes([[tool.name, tool.description, dict(tool.parameters)] for tool in tools]))


def tools_of(held: Json, find: Callable[[str], bytes]) -> tuple[Tool, ...]:
    """The reverse of `tools_json`."""
    if not isinstance(held, str):
        return ()
    tools = []
    for item in listed(json_of(find(held))):
        name, description, parameters = listed(item)
        tools.append(Tool(str(name), str(description), mapped(parameters)))
    return tuple(tools)


def listed(value: Json) -> list[Json]:
    """The value, which must be a list."""
    if not isinstance(value, list):
        raise damaged(f"a list is expected, not {type(value).__name__}")
    return value


def mapped(value: Json) -> dict[str, Json]:
    """The value, which must be an object."""
    if not isinstance(value, dict):
        raise damaged(f"an object is expected, not {type(value).__name__}")
    return value


def text_or_none(value: Json) -> str | None:
    """The value, which must be a string or null."""
    return None if value is None else str(value)


def number(value: Json) -> int:
    """The value, which must be an integer."""
    if not isinstance(value, int):
        raise damaged(f"a number is expected, not {type(value).__name__}")
    return value


def real(value: object) -> float:
    """The value of a column, which must be a number."""
    if not isinstance(value, int | float):
        raise damaged(f"a number is expected, not {type(value).__name__}")
    return float(value)


def metrics_text(metrics: Mapping[str, float]) -> str:
    """Numbers by name as JSON text."""
    return json.dumps(dict(metrics))


def metrics_of(text: str) -> dict[str, float]:
    """The reverse of `metrics_text`."""
    held = mapped(json.loads(text))
    return {name: float(value) for name, value in held.items() if isinstance(value, int | float)}


def _is_long(item: Message) -> bool:
    said = sum(len(part.text if isinstance(part, TextPart) else part.url) for part in item.content)
    return said + len(item.reasoning or "") + sum(len(call.arguments) for call in item.tool_calls) > LONG_TEXT_CHARS


def _dumped(value: Json) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _is_much(value: Json) -> bool:
    match value:
        case str():
            return len(value) > SLICE_CHARS
        case list():
            return len(value) > SLICE_ITEMS or any(map(_is_much, value))
        case dict():
            return len(value) > SLICE_ITEMS or any(map(_is_much, value.values()))
    return False


def _sliced(value: Json) -> bytes:
    """The same bytes as `_dumped`, written in slices."""
    match value:
        case str():
            slices = range(0, len(value), SLICE_CHARS)
            return b'"' + b"".join(_dumped(value[at : at + SLICE_CHARS])[1:-1] for at in slices) + b'"'
        case list():
            groups = [value[at : at + SLICE_ITEMS] for at in range(0, len(value), SLICE_ITEMS)]
            return b"[" + b",".join(_group(group) for group in groups) + b"]"
        case dict():
            return b"{" + b",".join(_dumped(name) + b":" + json_bytes(item) for name, item in value.items()) + b"}"
    return _dumped(value)


def _group(items: list[Json]) -> bytes:
    """Several items of a list, with commas between them."""
    return b",".join(map(json_bytes, items)) if any(map(_is_much, items)) else _dumped(items)[1:-1]


def _message_of(body: Json) -> Message:
    return from_json(mapped(body))


def _swap(held: array[int] | array[float]) -> None:
    """Converts between the machine's byte order and little-endian."""
    if sys.byteorder == "big":
        held.byteswap()
