"""Small pictures for tests."""

from __future__ import annotations

import struct
import zlib


def a_png(shade: int = 128, *, width: int = 4, height: int = 3, words: str = "") -> bytes:
    """A grey PNG; `words` are in it as text, so that a search of the disk can find them."""
    rows = b"".join(b"\0" + bytes([shade]) * width for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    if words:
        chunks.insert(1, (b"tEXt", b"Comment\0" + words.encode("latin-1")))
    made = [
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(made)
