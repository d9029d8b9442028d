"""Messages between a process and the children it started: length-prefixed pickles over the child's stdin and stdout.

Pickle is safe here because both ends are our own processes and no other process has the pipe.
"""

from __future__ import annotations

import pickle
import select
import struct
from typing import IO, Protocol

HEADER = struct.Struct("<I")


class Connection(Protocol):
    """The type of a socket's file in Python."""

    def read(self, size: int = ..., /) -> bytes:
        """Up to `size` bytes; fewer only if the other end is gone."""

    def write(self, data: bytes, /) -> int:
        """Writes all bytes."""

    def flush(self) -> None:
        """Hands it on."""

    def close(self) -> None:
        """Closes it."""


def packed(message: object) -> bytes:
    """The message, prefixed with its length."""
    body = pickle.dumps(message, protocol=5)
    return HEADER.pack(len(body)) + body


def write(stream: IO[bytes] | Connection, message: object) -> None:
    """Sends a message and flushes it."""
    stream.write(packed(message))
    stream.flush()


def read(stream: IO[bytes] | Connection) -> object | None:
    """The next message, or None if the other end is gone. Blocks."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    (size,) = HEADER.unpack(header)
    body = stream.read(size)
    return pickle.loads(body) if len(body) == size else None


def is_readable(fd: int, timeout_s: float) -> bool:
    """Whether something can be read, or the other end is gone, within this time.

    It does not use `select`, which accepts no file descriptor above 1,023; a busy server has more.
    """
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0.0, timeout_s) * 1000))
