"""Hands a generation to a client, streamed or whole; how an event is worded is the API's own business."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Protocol

from aiohttp import web

from openclaw_rl.core.completion import SampledToken
from openclaw_rl.render.parsers import ReplyDelta
from openclaw_rl.serve.choice import Choice
from openclaw_rl.serve.failures import error_body
from openclaw_rl.serve.generate import ClientGone, Generation
from openclaw_rl.serve.outbox import Outbox

_GONE = 499  # nobody reads it; for the log


class Chunks(Protocol):
    """The events of one API. Each may be empty: then nothing is sent."""

    def first(self, index: int) -> bytes:
        """An answer begins; sent at once, before any token."""
        ...

    def event(self, index: int, deltas: Sequence[ReplyDelta], sampled: Sequence[SampledToken]) -> bytes:
        """What one token added."""
        ...

    def last(self, index: int, reason: str) -> bytes:
        """How an answer ended."""
        ...

    def end(self, generation: Generation) -> bytes:
        """All answers have ended and are in the store."""
        ...

    def problem(self, body: bytes) -> bytes:
        """An error after the status has gone out."""
        ...


async def streamed(request: web.Request, generation: Generation, chunks: Chunks) -> web.StreamResponse:
    """Sends the answers as they are sampled. The last event is held until their turns are in the store.

    What the engine refuses at once (a full queue) is raised before a status has gone out.
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
    except Exception as problem:  # told to the client, and recorded where its words are made
        return await _broken_off(problem, outbox, chunks)
    last = [chunks.last(choice.index, choice.reason) for choice in generation.choices]
    return await outbox.close(b"".join((*last, chunks.end(generation))))


async def _broken_off(problem: Exception, outbox: Outbox, chunks: Chunks) -> web.StreamResponse:
    """The end of a stream that has no proper one: told to the client, recorded where the error's body is made."""
    if isinstance(problem, ClientGone | ConnectionError):
        outbox.abandon()
        return outbox.response
    if not outbox.is_open:
        raise problem
    return await outbox.close(chunks.problem(error_body(problem)[1]))


async def whole(request: web.Request, generation: Generation) -> web.Response | None:
    """Samples the answers to their end; a response where the client went away meanwhile."""
    try:
        await generation.run(_Collecting(request))
    except ClientGone:
        return web.Response(status=_GONE)
    return None


class _Streaming:
    """The sink of a streamed answer. Status and headers go out with the first token, or `opening` sends them before."""

    def __init__(self, outbox: Outbox, chunks: Chunks, generation: Generation) -> None:
        self._outbox = outbox
        self._chunks = chunks
        self._generation = generation
        self._is_over = False
        self._opener: asyncio.Task[None] | None = None  # held, since the loop alone does not keep a task

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """Within it the client is informed soon that its answer has begun, however long the first token takes.

        Not before the engine has taken or refused every answer, which it does in its first step: one pass of the loop
        starts those that run beside each other, so this waits for two.
        """
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._open_now)
        try:
            yield
        finally:
            self._is_over = True

    async def open(self) -> None:
        """Sends status, headers, each answer's first event and what was said so far, unless they have gone out."""
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
        with contextlib.suppress(ConnectionError):  # the next token finds nobody there
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
