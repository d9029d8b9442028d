"""Reading from pipes without blocking: lines of a report, and output of bounded size."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable

from openclaw_rl.envs.box.sandbox import Output, Watch

PIECE_BYTES = 65_536
MOST_PIECES_AT_THE_END = 64  # further output of a process that was left behind is not awaited


class Lines:
    """The lines read from a pipe; owns the file descriptor."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._held = b""
        self._lines: deque[str] = deque()
        self._is_at_end = False
        self._changed = asyncio.Event()
        asyncio.get_running_loop().add_reader(fd, self._read)

    def _read(self) -> None:
        try:
            piece = os.read(self._fd, PIECE_BYTES)
        except BlockingIOError:
            return
        if not piece:
            self._is_at_end = True
            asyncio.get_running_loop().remove_reader(self._fd)
        *whole, self._held = (self._held + piece).split(b"\n")
        self._lines.extend(line.decode("utf-8", "replace") for line in whole)
        self._changed.set()

    async def next(self) -> str | None:
        """The next line, or None after the last."""
        while not self._lines:
            if self._is_at_end:
                return None
            self._changed.clear()
            await self._changed.wait()
        return self._lines.popleft()

    def close(self) -> None:
        """Releases the pipe."""
        self._fd = _closed(self._fd)


class Capture:
    """The output of a process: its start and end are kept, the bytes between are counted. Owns the file descriptor."""

    def __init__(
        self,
        fd: int,
        *,
        kept_bytes: int,
        read_bytes: int,
        on_flood: Callable[[], None],
        watch: Watch | None = None,
    ) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._half = max(1, kept_bytes // 2)
        self._most = read_bytes
        self._on_flood = on_flood
        self._watch = watch
        self._start()
        asyncio.get_running_loop().add_reader(fd, self._read)

    def _start(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._seen = 0

    def _read(self) -> bool:
        """Adds a piece; returns whether there may be more."""
        try:
            piece = os.read(self._fd, PIECE_BYTES)
        except BlockingIOError:
            return False
        if not piece:
            asyncio.get_running_loop().remove_reader(self._fd)
            return False
        if self._watch is not None:
            self._watch(piece)
        was_under = self._seen <= self._most
        self._seen += len(piece)
        room = self._half - len(self._head)
        self._head += piece[:room]
        self._tail += piece[max(0, room) :]
        if len(self._tail) > 4 * self._half + PIECE_BYTES:
            del self._tail[: -self._half]
        if was_under and self._seen > self._most:
            self._on_flood()
        return True

    def take(self) -> Output:
        """The output since the last call, including what is in the pipe now."""
        for _ in range(MOST_PIECES_AT_THE_END):
            if self._fd < 0 or not self._read():
                break
        head, tail = bytes(self._head), bytes(self._tail[-self._half :])
        output = Output(head, tail, self._seen - len(head) - len(tail))
        self._start()
        return output

    def close(self) -> None:
        """Releases the pipe."""
        self._fd = _closed(self._fd)


def memory_file(data: bytes) -> int:
    """A file descriptor that reads `data`; nobody can write to it."""
    import fcntl

    fd = os.memfd_create("input", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    return fd


def close_all(fds: list[int]) -> None:
    """Closes file descriptors and ignores errors."""
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)


def _closed(fd: int) -> int:
    """-1, after it stops reading the descriptor and closes it."""
    if fd >= 0:
        asyncio.get_running_loop().remove_reader(fd)
        os.close(fd)
    return -1
