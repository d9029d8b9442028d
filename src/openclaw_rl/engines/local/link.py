"""The engine's process as its client sees it: frames, one-time questions, and each request's stream."""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from openclaw_rl.core import pipe
from openclaw_rl.core.completion import SampledToken
from openclaw_rl.core.engine import EngineStats
from openclaw_rl.core.sampling import Grammar, Sampling
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.engines.local import wire
from openclaw_rl.engines.local.recent import Recent
from openclaw_rl.engines.local.wire import Submit
from openclaw_rl.errors import EngineError, RequestError

MODULE = "openclaw_rl.engines.local.host"
MOST_KNOWN = 512
MOST_KNOWN_CHARS = 8_000_000
COMPILE_S = 20.0  # including those in the queue before it


class ChildLink(asyncio.SubprocessProtocol):
    """The child process as the event loop sees it: frames in, frames out, and the moment it is gone.

    Its base class is how asyncio calls back; frames are handled as they arrive, without a task.
    """

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
        """Closes the child's stdin, which ends it; kills it if it does not end."""
        if self._stdin is not None:
            self._stdin.close()
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(self.gone)
        except TimeoutError:
            if self._transport is not None:
                self._transport.kill()
            await self.gone

    # -- called by asyncio
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The child runs."""
        assert isinstance(transport, asyncio.SubprocessTransport)
        stdin = transport.get_pipe_transport(0)
        assert isinstance(stdin, asyncio.WriteTransport)
        self._transport, self._stdin = transport, stdin

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Handles all complete frames."""
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
        """The child has ended and all its output was read."""
        if not self.gone.done():
            self.gone.set_result(None)
            if self._transport is not None:
                self._transport.close()
            self._on_gone(self)


class Questions:
    """Questions that the child answers once: its counters, and whether a grammar can be followed.

    Futures by their request's id. `send` sends a command to the child.
    """

    def __init__(self, send: Callable[[wire.Command], None]) -> None:
        self._send = send
        self._stats: dict[int, asyncio.Future[EngineStats]] = {}
        self._compiles: dict[int, asyncio.Future[None]] = {}
        self._known: Recent[bool] = Recent(most=MOST_KNOWN, most_chars=MOST_KNOWN_CHARS)  # grammars found good

    async def stats(self, request: int) -> EngineStats:
        """The child's counters. Raises EngineError if it ends before it answers."""
        future: asyncio.Future[EngineStats] = asyncio.get_running_loop().create_future()
        self._stats[request] = future
        self._send(wire.AskStats(request))
        try:
            return await future
        finally:
            del self._stats[request]

    async def compile(self, request: int, grammar: Grammar) -> None:
        """Raises RequestError for a grammar that cannot be followed, or takes too long to compile."""
        if self._known.get(grammar.text):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._compiles[request] = future
        self._send(wire.Compile(request, grammar))
        try:
            async with asyncio.timeout(COMPILE_S):
                await future
        except TimeoutError as error:
            raise RequestError(
                f"the format of the answer was not compiled in {COMPILE_S:.0f} s",
                fix="simplify the schema or grammar",
                code="unsupported_format",
            ) from error
        finally:
            del self._compiles[request]
        self._known.put(grammar.text, True)

    def answered(self, answer: wire.Stats | wire.CompileResult) -> None:
        """Hands an answer to the caller that waits for it."""
        if isinstance(answer, wire.Stats):
            asked = self._stats.get(answer.id)
            if asked is not None and not asked.done():
                asked.set_result(answer.stats)
            return
        waiting = self._compiles.get(answer.id)
        if waiting is None or waiting.done():
            return
        if answer.problem:
            waiting.set_exception(RequestError(answer.problem, fix=answer.fix, code=answer.code))
        else:
            waiting.set_result(None)

    def fail(self, error: EngineError) -> None:
        """The child is gone: all open questions fail."""
        for asked in self._stats.values():
            if not asked.done():
                asked.set_exception(error)
        for waiting in self._compiles.values():
            if not waiting.done():
                waiting.set_exception(error)


@dataclass(slots=True, eq=False)
class Stream:
    """One request as its reader sees it: its tokens, and what is needed to continue if the engine's process dies.

    `max_tokens` bounds its list of tokens; a slow reader delays no other.
    """

    id: int
    prompt: tuple[int, ...]
    sampling: Sampling
    version: PolicyVersion
    seed: int
    tokens: list[int] = field(default_factory=list)
    has_ended: bool = False
    is_submitted: bool = False  # to the process that runs now
    tokens_at_death: int | None = None  # how many there were when the process last died during it
    _unread: list[SampledToken] = field(default_factory=list)
    _error: EngineError | None = None
    _waiter: asyncio.Future[None] | None = None

    def submit(self) -> Submit:
        """The request from its last token on: sampled tokens join the prompt, their random numbers are used up."""
        count = len(self.tokens)
        self.is_submitted = True
        return Submit(
            self.id,
            (*self.prompt, *self.tokens),
            replace(self.sampling, max_tokens=self.sampling.max_tokens - count) if count else self.sampling,
            self.version,
            self.seed,
            drawn=count,
        )

    def outlived(self) -> bool:
        """Records that the process died; False if it died twice during this stream without a token in between."""
        if not self.is_submitted or self.has_ended:
            return True
        self.is_submitted = False
        is_suspect = self.tokens_at_death == len(self.tokens)
        self.tokens_at_death = len(self.tokens)
        return not is_suspect

    async def items(self) -> list[SampledToken]:
        """The tokens since the last call, at least one. Raises EngineError once a failed stream was read to its end."""
        if not self._unread:
            if self._error is not None:
                raise self._error
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
            if not self._unread and self._error is not None:
                raise self._error
        unread, self._unread = self._unread, []
        return unread

    def add(self, item: SampledToken) -> None:
        """One more token."""
        self._unread.append(item)
        self.tokens.append(item.token)
        if item.finish is not None:
            self.has_ended = True
        self._tell()

    def fail(self, error: EngineError) -> None:
        """No more tokens will come."""
        if not self.has_ended:
            self.has_ended = True
            self._error = error
            self._tell()

    def _tell(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class StreamResumer:
    """Submits the requests that were open when the process died, one after the other: each once the last has a token.

    If it dies again, the request submitted last is the cause, not all that were open.
    """

    def __init__(self, send: Callable[[Submit], None], all_run: Callable[[], None]) -> None:
        self._send = send
        self._all_run = all_run
        self._waiting: deque[Stream] = deque()
        self._tried: Stream | None = None

    def begin(self, streams: Iterable[Stream]) -> None:
        """Submits those during which the process did not die, and the first of the others."""
        self.clear()
        for stream in streams:
            if not stream.has_ended and not stream.is_submitted:
                if stream.tokens_at_death is None:
                    self._send(stream.submit())
                else:
                    self._waiting.append(stream)
        self._next()

    def went_on(self, stream: Stream) -> None:
        """The stream has a token, or is over: if it was this one's turn, the next one is submitted."""
        if stream is self._tried:
            self._next()
        elif self._waiting and stream.has_ended and stream in self._waiting:
            self._waiting.remove(stream)

    def clear(self) -> None:
        """Drops the queue: the process has died again, or nobody waits any more."""
        self._waiting.clear()
        self._tried = None

    def _next(self) -> None:
        self._tried = self._waiting.popleft() if self._waiting else None
        if self._tried is not None:
            self._send(self._tried.submit())
        else:
            self._all_run()
