"""Hands a generation to a client, streamed or whole; each API words its own events."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import time
from asyncio.trsock import TransportSocket
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpVersion11

from openclaw_rl.core.completion import SampledToken
from openclaw_rl.render.parsers import ReplyDelta
from openclaw_rl.serve.answers import Choice
from openclaw_rl.serve.failures import error_body
from openclaw_rl.serve.generate import ClientGone, Generation

_GONE = 499  # nobody reads it; for the log
DONE = b"data: [DONE]\n\n"
_TOGETHER_S = 0.001  # events this soon after a write belong to the same burst
_HELLO = b":\n\n"  # a comment: an API without a first event still gets its headers at once
_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class Chunks(Protocol):
    """The events of one API. Each may be empty: then nothing is sent."""

    def first(self, index: int) -> bytes:
        """An answer begins; sent at once, before any token."""

    def event(self, index: int, deltas: Sequence[ReplyDelta], sampled: Sequence[SampledToken]) -> bytes:
        """What one token added."""

    def last(self, index: int, reason: str) -> bytes:
        """How an answer ended."""

    def end(self, generation: Generation) -> bytes:
        """All answers have ended and are in the store."""

    def problem(self, body: bytes) -> bytes:
        """An error after the status was sent."""


async def streamed(request: web.Request, generation: Generation, chunks: Chunks) -> web.StreamResponse:
    """Sends the answers as they are sampled. The last event waits until their turns are in the store.

    What the engine refuses at once (a full queue) is raised before a status was sent.
    """
    settings = generation.parts.settings
    outbox = Outbox(
        request, generation.headers, max_buffer_bytes=settings.max_buffer_bytes, stalled_s=settings.stalled_s
    )
    sink = _Streaming(outbox, chunks, generation)
    try:
        with sink.opening():
            await generation.run(sink)
        await sink.open()
    except Exception as problem:  # sent to the client, and recorded where its body is made
        return await _broken_off(problem, outbox, chunks)
    last = [chunks.last(choice.index, choice.reason) for choice in generation.choices]
    return await outbox.close(b"".join((*last, chunks.end(generation))))


async def _broken_off(problem: Exception, outbox: Outbox, chunks: Chunks) -> web.StreamResponse:
    """The end of a stream that failed: sent to the client, and recorded where the error's body is made."""
    if isinstance(problem, ClientGone | ConnectionError):
        outbox.abandon()
        return outbox.response
    if not outbox.is_open:
        raise problem
    return await outbox.close(chunks.problem(error_body(problem)[1]))


async def whole(request: web.Request, generation: Generation) -> web.Response | None:
    """Samples the answers to their end; returns a response only if the client went away meanwhile."""
    try:
        await generation.run(_Collecting(request))
    except ClientGone:
        return web.Response(status=_GONE)
    return None


class _Streaming:
    """The sink of a streamed answer. Status and headers are sent with the first token, or earlier by `opening`."""

    def __init__(self, outbox: Outbox, chunks: Chunks, generation: Generation) -> None:
        self._outbox = outbox
        self._chunks = chunks
        self._generation = generation
        self._is_over = False
        self._opener: asyncio.Task[None] | None = None  # kept, since the loop alone does not keep a task

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """A context in which the client soon learns that its answer has begun, however long the first token takes.

        Not before the engine has accepted or refused every answer, which it does in its first step: one pass of the
        loop starts those that run concurrently, so this waits for two.
        """
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._open_now)
        try:
            yield
        finally:
            self._is_over = True

    async def open(self) -> None:
        """Sends status, headers, each answer's first event and its text so far, unless they were sent."""
        if not self._outbox.is_open:
            await self._outbox.open(b"".join([self._chunks.first(choice.index) for choice in self._generation.choices]))

    def piece(self, choice: Choice, deltas: Sequence[ReplyDelta], sampled: Sequence[SampledToken]) -> bool:
        event = self._chunks.event(choice.index, deltas, sampled)
        if event:
            self._outbox.put(event)
        return self._outbox.is_behind or not self._outbox.is_open

    async def drain(self) -> None:
        try:
            await self.open()
        except ConnectionError:
            raise ClientGone from None
        if self._outbox.is_behind and not await self._outbox.drain():
            raise ClientGone

    def _open_now(self) -> None:
        if not (self._is_over or self._generation.has_failed or self._outbox.is_open):
            self._opener = asyncio.create_task(self._open_early())

    async def _open_early(self) -> None:
        with contextlib.suppress(ConnectionError):  # the next token notices that the client is gone
            await self.open()


class _Collecting:
    """The sink of an answer that is sent whole: it only notices a client that goes away."""

    def __init__(self, request: web.Request) -> None:
        self._request = request

    def piece(self, choice: Choice, deltas: Sequence[ReplyDelta], sampled: Sequence[SampledToken]) -> bool:
        """Nothing is sent before the end."""
        transport = self._request.transport
        return transport is None or transport.is_closing()

    async def drain(self) -> None:
        raise ClientGone


class Outbox:
    """One client's stream of server-sent events, written as cheaply as they can be.

    Events are queued without waiting. A single one is handed to the transport immediately, which saves a pass of the
    loop for each token. If events come in bursts, as several tokens in one message of the engine or those of several
    answers do, a callback at the end of the pass hands them over together: they share a system call. Headers are sent
    with the first event, and the end marker with the last.

    A client that has not caught up within `stalled_s` is disconnected.
    """

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
        """Whether status and headers were sent."""
        return self._writer is not None

    async def open(self, first: bytes) -> None:
        """Sends headers, the first event, and what tokens have added so far; once, before anything is drained."""
        writer = await self.response.prepare(self._request)
        assert writer is not None
        self._writer = writer
        await writer.write(b"".join((first or _HELLO, *self._taken())))

    def put(self, event: bytes) -> None:
        """Sends the event now, or at the end of this pass with others. Once `is_behind`, `drain` must be awaited."""
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
        """Whether the client has caught up; if not, `abandon` must be called once its turn is stored."""
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
        """Closes the connection, which cancels its handler."""
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
        """Whether the client reads it in time."""
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
        """Makes the kernel drop its unsent bytes after the same time once the stream has ended."""
        if sys.platform == "linux" and self._request.transport is not None:
            held = self._request.transport.get_extra_info("socket")
            if isinstance(held, TransportSocket):
                held.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(self._stalled_s * 1000))
