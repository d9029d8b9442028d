"""Operations: each is done once even if its client disappears; its result is kept for repeated requests."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from openclaw_rl.envs.pool.journal import Journal, KeptOperation
from openclaw_rl.envs.pool.wire import refusal_body
from openclaw_rl.errors import PoolError

log = logging.getLogger(__name__)
MOST_REQUEST_BYTES = 65_536  # the journal keeps a digest of longer ones
MOST_OUTPUT_BYTES = 1_000_000  # of a running command, kept for watchers


@dataclass(frozen=True, slots=True)
class OperationResult:
    """The result of an operation: an HTTP status and a JSON body."""

    status: int
    body: bytes
    is_replayed: bool = False


@dataclass(slots=True)
class LiveOutput:
    """The output of a running command; the oldest is dropped if there is too much, and counted."""

    pieces: deque[bytes] = field(default_factory=deque)
    start: int = 0  # number of bytes before the first piece
    size: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, data: bytes) -> None:
        """Adds output."""
        self.pieces.append(data)
        self.size += len(data)
        while self.size > MOST_OUTPUT_BYTES:
            gone = len(self.pieces.popleft())
            self.start, self.size = self.start + gone, self.size - gone
        self.changed.set()

    def after(self, offset: int) -> tuple[bytes, int]:
        """The output from an offset on, and the next offset."""
        data = b"".join(self.pieces)
        return data[max(0, offset - self.start) :], self.start + len(data)


@dataclass(slots=True)
class Operation:
    """An operation that is running, or has just ended."""

    id: str
    lease: str
    call: str
    request: bytes
    done: asyncio.Future[OperationResult]
    task: asyncio.Task[None] | None = None
    ended_by: PoolError | None = None
    output: LiveOutput = field(default_factory=LiveOutput)
    seen_s: float = field(default_factory=time.monotonic)  # when somebody last asked for it

    def cancel(self, why: PoolError) -> None:
        """Cancels it; this error is then its answer."""
        if self.task is not None and not self.done.done():
            self.ended_by = why
            self.task.cancel()

    async def wait(self, wait_s: float) -> OperationResult | None:
        """The answer when it is ready; None if it takes longer."""
        self.seen_s = time.monotonic()
        try:
            async with asyncio.timeout(wait_s):
                return await asyncio.shield(self.done)
        except TimeoutError:
            return None
        finally:
            self.seen_s = time.monotonic()


class Operations:
    """All operations of a server. `ended` gets the call, status and duration in seconds of each."""

    def __init__(self, journal: Journal, group: asyncio.TaskGroup, ended: Callable[[str, int, float], None]) -> None:
        self._journal = journal
        self._group = group
        self._ended = ended
        self._live: dict[str, Operation] = {}
        self.replayed = 0
        self.lost = 0  # begun by a killed server, with unknown result

    @property
    def live(self) -> list[Operation]:
        """Those under way."""
        return [*self._live.values()]

    async def start(
        self, name: str, *, lease: str, call: str, request: bytes, work: Callable[[Operation], Awaitable[bytes]]
    ) -> Operation:
        """The operation of this name: begun now, or the earlier one. PoolError if the earlier one was another call."""
        if not name or len(name) > 200:
            raise PoolError(
                "a call that changes something needs an operation id of at most 200 characters",
                fix="send a new one with each call in the header Operation-Id, and the same one when you try again",
                code="no_operation_id",
            )
        noted = request if len(request) <= MOST_REQUEST_BYTES else hashlib.sha256(request).hexdigest().encode()
        known = self._live.get(name)
        if known is not None:
            _check_same(name, (known.lease, known.call, known.request), (lease, call, noted))
            self.replayed += 1
            return known
        operation = Operation(name, lease, call, noted, asyncio.get_running_loop().create_future())
        self._live[name] = operation
        try:
            kept = await self._journal.begin(name, lease=lease, call=call, request=noted)
            if kept is not None:
                _check_same(name, (kept.lease, kept.call, kept.request), (lease, call, noted))
                operation.done.set_result(self._kept(kept))
        except BaseException as problem:
            del self._live[name]
            why = problem if isinstance(problem, PoolError) else _bug()
            operation.done.set_result(
                OperationResult(why.status, refusal_body(why))
            )  # for requests that came meanwhile
            operation.output.changed.set()
            raise
        if kept is not None:
            del self._live[name]
            self.replayed += 1
        else:
            operation.task = self._group.create_task(self._run(operation, work))
        return operation

    async def find(self, name: str) -> Operation:
        """An operation by its id. PoolError (404) if there is none."""
        if name in self._live:
            return self._live[name]
        kept = await self._journal.operation(name)
        if kept is None:
            raise PoolError(f"there is no operation {name!r}", status=404, code="unknown_operation")
        done = asyncio.get_running_loop().create_future()
        done.set_result(self._kept(kept))
        return Operation(name, kept.lease, kept.call, kept.request, done)

    def _kept(self, kept: KeptOperation) -> OperationResult:
        if kept.status is not None and kept.answer is not None:
            return OperationResult(kept.status, kept.answer, is_replayed=True)
        self.lost += 1
        problem = PoolError(
            f"the server ended while this {kept.call} ran, and what came of it is unknown; it is not done again",
            fix="begin the episode again",
            status=502,
            code="result_unknown",
            failure="infrastructure",
        )
        return OperationResult(problem.status, refusal_body(problem), is_replayed=True)

    async def _run(self, operation: Operation, work: Callable[[Operation], Awaitable[bytes]]) -> None:
        began = time.monotonic()
        try:
            answer = OperationResult(200, await work(operation))
        except PoolError as problem:
            answer = OperationResult(problem.status, refusal_body(problem))
        except asyncio.CancelledError:
            why = operation.ended_by or _stopping(operation.call)
            answer = OperationResult(why.status, refusal_body(why))
        except Exception:  # a bug in this server ends one operation, not all
            log.exception("operation=%s call=%s failed", operation.id, operation.call)
            answer = OperationResult(500, refusal_body(_bug()))
        try:
            await asyncio.shield(self._noted(operation, answer))
        finally:
            operation.done.set_result(answer)
            operation.output.changed.set()
            self._ended(operation.call, answer.status, time.monotonic() - began)

    async def note_again(self) -> None:
        """Writes results that could not be written earlier."""
        for operation in self.live:
            if operation.done.done():
                await self._noted(operation, operation.done.result())

    async def _noted(self, operation: Operation, answer: OperationResult) -> None:
        """Writes the result; if that fails, the result stays in memory while this server lives."""
        try:
            await self._journal.finish(operation.id, answer.status, answer.body)
        except PoolError as problem:
            log.error("the result of operation=%s stays in memory: %s", operation.id, problem)
            return
        del self._live[operation.id]


def _stopping(call: str) -> PoolError:
    return PoolError(
        f"the pool was stopped during this {call}",
        fix="begin the episode again, on another pool",
        status=503,
        code="draining",
        failure="infrastructure",
    )


def _check_same(name: str, one: tuple[str, str, bytes], other: tuple[str, str, bytes]) -> None:
    if one != other:
        raise PoolError(
            f"operation {name} was another call", fix="use a new operation id", status=409, code="operation_mismatch"
        )


def _bug() -> PoolError:
    """The answer for an unforeseen error."""
    return PoolError("the pool failed; see its log", status=500, code="pool_failed", failure="infrastructure")
