"""Server-sent events, written as cheaply as they can be: all that is ready in one pass of the loop is one write.

Events are put down without waiting; a callback at the end of the pass hands them to the transport together. So tokens
that arrive in one message of the engine, and those of several answers, share a system call, and no token costs a task
switch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpVersion11

DONE = b"data: [DONE]\n\n"
_HELLO = b":\n\n"  # a comment: an API without a first event still gets its headers at once
_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class Outbox:
    """One client's stream."""

    def __init__(self, request: web.Request, headers: Mapping[str, str], *, max_buffer_bytes: int) -> None:
        self._request = request
        self.response = web.StreamResponse(headers={**_HEADERS, **headers})
        self._is_chunked = request.version >= HttpVersion11
        self._max_buffer_bytes = max_buffer_bytes
        self._loop = asyncio.get_running_loop()
        self._writer: AbstractStreamWriter | None = None
        self._pending: list[bytes] = []

    @property
    def is_gone(self) -> bool:
        """Whether the client went away."""
        transport = self._request.transport
        return transport is None or transport.is_closing()

    @property
    def is_full(self) -> bool:
        """Whether the client lags too far behind."""
        transport = self._request.transport
        return transport is not None and transport.get_write_buffer_size() > self._max_buffer_bytes

    @property
    def is_open(self) -> bool:
        """Whether status and headers have gone out."""
        return self._writer is not None

    async def open(self, first: bytes) -> None:
        """Sends headers and the first event."""
        if self._is_chunked:
            self.response.enable_chunked_encoding()
        self._writer = await self.response.prepare(self._request)
        await self.response.write(first or _HELLO)
        self._flush()  # tokens may have come before the headers were out

    def put(self, event: bytes) -> None:
        """Goes out at the end of this pass of the loop."""
        if not self._pending:
            self._loop.call_soon(self._flush)
        self._pending.append(event)

    async def drain(self) -> None:
        """Until the client has caught up."""
        self._flush()
        if self._writer is not None:
            await self._writer.drain()

    async def close(self, last: bytes) -> web.StreamResponse:
        """Sends the last event and ends the stream."""
        self._flush()
        await self.response.write(last)
        await self.response.write_eof()
        return self.response

    def _flush(self) -> None:
        if not self._pending or self._writer is None:
            return
        data = b"".join(self._pending)
        self._pending.clear()
        transport = self._request.transport
        if transport is None or transport.is_closing():
            return
        transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data)
