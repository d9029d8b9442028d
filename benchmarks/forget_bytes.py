"""Looking for words in every byte of a folder: as text, as ids, in other encodings, compressed, and row by row."""

from __future__ import annotations

import base64
import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.errors import StoreError
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.template import read_template
from openclaw_rl.store import codec

LEAST_IDS = 3  # ids in a row that are taken for the word


@dataclass(frozen=True, slots=True)
class Found:
    """How many bytes of the words there are, and in which forms."""

    size_bytes: int
    by_form: dict[str, int]


def found_in(folder: Path, words: Sequence[str], model: Path) -> Found:
    """All occurrences of any of the words in the folder."""
    needles = [*_needles(words, model)]
    forms: Counter[str] = Counter()
    size = 0
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        data = path.read_bytes()
        pieces = [("plain", data)] + [("compressed", piece) for piece in _inflated(data)]
        if path.name == "store.db":
            pieces += [("row", piece) for piece in _rows(path)]
        for place, piece in pieces:
            for form, needle in needles:
                times = piece.count(needle)
                forms[f"{place} {form}"] += times
                size += times * len(needle)
    return Found(size, {form: times for form, times in forms.items() if times})


def _needles(words: Sequence[str], model: Path) -> Iterator[tuple[str, bytes]]:
    renderer = ChatRenderer(read_template(model))
    phrase = renderer.encode(" " + " ".join(words))
    for at in range(len(phrase) - LEAST_IDS + 1):
        for name, width in (("int32 ids", 4), ("int16 ids", 2), ("int64 ids", 8)):
            if width > 2 or at % LEAST_IDS == 0:
                yield name, b"".join(token.to_bytes(width, "little") for token in phrase[at : at + LEAST_IDS])
    for word in words:
        for name in ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le"):
            yield name, word.encode(name)
        yield "reversed", word[::-1].encode()
        yield "hex", word.encode().hex().encode()
        for shift in range(3):
            coded = base64.b64encode(b"\0" * shift + word.encode()).rstrip(b"=")
            yield "base64", coded[4 if shift else 0 : -1]


def _inflated(data: bytes) -> Iterator[bytes]:
    """What begins anywhere as a zlib stream, as far as it can be read."""
    at = data.find(b"\x78")
    while at >= 0:
        if data[at + 1 : at + 2] in (b"\x01", b"\x5e", b"\x9c", b"\xda"):
            inflater, piece = zlib.decompressobj(), b""
            try:
                for start in range(at, len(data), 512):
                    piece += inflater.decompress(data[start : start + 512])
                    if inflater.eof:
                        break
            except zlib.error:
                pass
            if piece:
                yield piece
        at = data.find(b"\x78", at + 1)


def _rows(path: Path) -> Iterator[bytes]:
    """Every value of every row, unpacked where it is packed."""
    sql = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        for (table,) in sql.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in sql.execute(f"SELECT * FROM {table}"):
                for value in row:
                    if isinstance(value, str):
                        yield value.encode("utf-8", "surrogatepass")
                    elif isinstance(value, bytes):
                        yield value
                        try:
                            yield codec.unpack(value)
                        except (StoreError, zlib.error):
                            continue
    finally:
        sql.close()
