"""The child process as the event loop sees it: frames in, frames out, and the moment it is gone."""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from collections.abc import Callable

from openclaw_rl.core import pipe

MODULE = "openclaw_rl.engines.local.host"


class ChildLink(asyncio.SubprocessProtocol):
    """One child. Its base class is how asyncio calls back; frames are handled as they come, without a task."""

    def __init__(self, on_message: Callable[[object], None], on_gone: Callable[[ChildLink], None]) -> None:
        self._on_message = on_message
        self._on_gone = on_gone
        self._buffer = bytearray()
        self._transport: asyncio.SubprocessTransport | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self.gone = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(
        cls, on_message: Callable[[object], None], on_gone: Callable[[ChildLink], None], *, threads: int
    ) -> ChildLink:
        """Starts a child. Its messages go to `on_message`; `on_gone` is called once, when it has ended."""
        env = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        _, link = await asyncio.get_running_loop().subprocess_exec(
            lambda: cls(on_message, on_gone), sys.executable, "-m", MODULE, stderr=None, env=env
        )
        return link

    @property
    def pid(self) -> int:
        """The child's process id."""
        return 0 if self._transport is None else (self._transport.get_pid() or 0)

    def send(self, message: object) -> None:
        """Queues a message; one to a child that has ended is lost."""
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.write(pipe.packed(message))

    async def close(self, *, timeout_s: float) -> None:
        """Closes the child's stdin, upon which it ends; kills it where it does not."""
        if self._stdin is not None:
            self._stdin.close()
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(self.gone)
        except TimeoutError:
            if self._transport is not None:
                self._transport.kill()
            await self.gone

    # -- what asyncio calls
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The child runs."""
        assert isinstance(transport, asyncio.SubprocessTransport)
        stdin = transport.get_pipe_transport(0)
        assert isinstance(stdin, asyncio.WriteTransport)
        self._transport, self._stdin = transport, stdin

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Handles all whole frames."""
        buffer = self._buffer
        buffer += data
        at, size = 0, len(buffer)
        while size - at >= pipe.HEADER.size:
            (length,) = pipe.HEADER.unpack_from(buffer, at)
            end = at + pipe.HEADER.size + length
            if end > size:
                break
            self._on_message(pickle.loads(buffer[at + pipe.HEADER.size : end]))
            at = end
        del buffer[:at]

    def connection_lost(self, exc: Exception | None) -> None:
        """The child has ended and all it said was read."""
        if not self.gone.done():
            self.gone.set_result(None)
            if self._transport is not None:
                self._transport.close()
            self._on_gone(self)
