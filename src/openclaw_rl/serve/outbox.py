"""Server-sent events, written as cheaply as they can be: one that comes alone at once, those that come together as one.

Events are put down without waiting. One that comes alone is handed to the transport there and then, which saves a pass
of the loop for each token. Where events come in bursts, as several tokens in one message of the engine or those of
several answers do, a callback at the end of the pass hands them over together: they share a system call. Headers go
out with the first event, and the mark of the end with the last.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from asyncio.trsock import TransportSocket
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpVersion11

DONE = b"data: [DONE]\n\n"
_TOGETHER_S = 0.001  # what comes so soon behind a write came in one burst with it
_HELLO = b":\n\n"  # a comment: an API without a first event still gets its headers at once
_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class Outbox:
    """One client's stream. A client that has not caught up within `stalled_s` is cut off."""

    def __init__(
        self,
        request: web.Request,
        headers: Mapping[str, str],
        *,
        max_buffer_bytes: int,
        stalled_s: float,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._request = request
        self._is_chunked = request.version >= HttpVersion11
        # Of the two kinds, only `Response` keeps its headers back until there is something to send with them; without
        # chunks it would name a length.
        self.response: web.StreamResponse
        if self._is_chunked:
            self.response = web.Response(headers={**_HEADERS, **headers})
            self.response.enable_chunked_encoding()
        else:
            self.response = web.StreamResponse(headers={**_HEADERS, **headers})
        self.is_behind = False
        self._max_buffer_bytes = max_buffer_bytes
        self._stalled_s = stalled_s
        self._loop = asyncio.get_running_loop()
        self._writer: AbstractStreamWriter | None = None
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._now_s = now_s
        self._wrote_s = float("-inf")
        self._wrote_before = 0  # events of this burst that went out before it was known to be one
        self._comes_in_bursts = False

    @property
    def is_open(self) -> bool:
        """Whether status and headers have gone out."""
        return self._writer is not None

    async def open(self, first: bytes) -> None:
        """Sends headers, the first event, and what tokens have added by now; once, before anything is drained."""
        writer = await self.response.prepare(self._request)
        assert writer is not None
        self._writer = writer
        await writer.write(b"".join((first or _HELLO, *self._taken())))

    def put(self, event: bytes) -> None:
        """Goes out now, or at the end of this pass with others. From `is_behind` on, `drain` is to be awaited."""
        if not self._pending:
            now_s = self._now_s()
            is_burst = now_s - self._wrote_s < _TOGETHER_S
            if self._writer is not None and not is_burst and not self._comes_in_bursts:
                self._wrote_s = now_s
                self._write(event)
                return
            self._wrote_before = int(is_burst)
            self._loop.call_soon(self._flush)
            self._pending_bytes = 0
        self._pending.append(event)
        self._pending_bytes += len(event)
        if self._pending_bytes > self._max_buffer_bytes:  # tokens came faster than the loop turns
            self.is_behind = True

    async def drain(self) -> bool:
        """Whether the client has caught up; where it has not, `abandon` is to be called once its turn is stored."""
        assert self._writer is not None
        self._flush()
        return await self._has_gone_out(self._writer.drain)

    async def close(self, last: bytes) -> web.StreamResponse:
        """Sends the last event and ends the stream."""
        assert self._writer is not None
        self._bound_kernel()
        rest = b"".join((*self._taken(), last))
        if await self._has_gone_out(partial(self._writer.write_eof, rest)):
            await self.response.write_eof()
        else:
            self.abandon()
        return self.response

    def abandon(self) -> None:
        """Cuts the connection, and with that cancels whoever answers on it."""
        if self._request.transport is not None:
            self._request.transport.abort()

    def _taken(self) -> list[bytes]:
        pending, self._pending = self._pending, []
        return pending

    def _flush(self) -> None:
        if not self._pending or self._writer is None:
            return
        self._comes_in_bursts = len(self._pending) + self._wrote_before > 1
        self._wrote_s = self._now_s()
        self._write(b"".join(self._taken()))

    def _write(self, data: bytes) -> None:
        transport = self._request.transport
        if transport is None or transport.is_closing():
            self.is_behind = True
            return
        transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data)
        self.is_behind = transport.get_write_buffer_size() > self._max_buffer_bytes

    async def _has_gone_out(self, send: Callable[[], Awaitable[None]]) -> bool:
        """Whether the client takes it, and in time."""
        transport = self._request.transport
        if transport is None or transport.is_closing():
            return False
        try:
            async with asyncio.timeout(self._stalled_s):
                await send()
        except (ConnectionError, TimeoutError):
            return False
        self.is_behind = False
        return True

    def _bound_kernel(self) -> None:
        """What the kernel still holds once the stream has ended is given up after the same time."""
        if sys.platform == "linux" and self._request.transport is not None:
            held = self._request.transport.get_extra_info("socket")
            if isinstance(held, TransportSocket):
                held.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(self._stalled_s * 1000))
