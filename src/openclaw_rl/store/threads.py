"""The thread that writes to the store, and the one that reads from it."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from openclaw_rl.core.event import Listener, StoreEvent, nobody
from openclaw_rl.core.ledger import State
from openclaw_rl.errors import StoreError
from openclaw_rl.store.connection import in_plain_words

MOST_PER_COMMIT = 256
CHECKPOINT_FROM_COMMITS = 200
Result = TypeVar("Result")


@dataclass(slots=True)
class Transaction:
    """The transaction of a piece of work; `moved` are the states that turns have moved into, `events` what happened."""

    sql: sqlite3.Connection
    moved: set[State] = field(default_factory=set)
    events: list[StoreEvent] = field(default_factory=list)


@dataclass(slots=True)
class _Job:
    """Work, and how its caller gets the result; `settle` runs on the caller's loop."""

    run: Callable[[Transaction], Callable[[], None]]
    fail: Callable[[Exception], None]
    is_synced: bool
    loop: asyncio.AbstractEventLoop
    settle: Callable[[], None]
    is_alone: bool = False  # outside of any transaction

    def attempt(self, transaction: Transaction) -> None:
        """Does the work within a savepoint. An error affects only its caller, unless SQLite ended the transaction."""
        moved_before, events_before = set(transaction.moved), len(transaction.events)
        transaction.sql.execute("SAVEPOINT job")
        try:
            self.settle = self.run(transaction)
        except sqlite3.IntegrityError as problem:
            self._undo(transaction, moved_before, events_before, ValueError(str(problem)))
        except sqlite3.Error:
            raise
        except Exception as problem:  # the caller gets it
            self._undo(transaction, moved_before, events_before, problem)
        else:
            transaction.sql.execute("RELEASE job")

    def refuse(self, problem: Exception) -> None:
        """The caller gets this instead of a result."""
        self.settle = lambda: self.fail(problem)

    def _undo(self, transaction: Transaction, moved_before: set[State], events: int, problem: Exception) -> None:
        transaction.sql.execute("ROLLBACK TO job")
        transaction.sql.execute("RELEASE job")
        transaction.moved.intersection_update(moved_before)
        del transaction.events[events:]
        self.refuse(problem)


class Writer:
    """The writing thread: work queued while a transaction runs is committed together in the next.

    Owns the writing connection and its thread.

    The callers bound the queue: each waits for its own row, and besides it a request queues only the next states of its
    history. `waiting` counts the queue.
    """

    def __init__(
        self, connection: sqlite3.Connection, on_moved: Callable[[set[State]], None], listener: Listener = nobody
    ) -> None:
        self._connection = connection
        self._on_moved = on_moved  # called on the callers' loop, once their rows are committed
        self._listener = listener  # the same
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._is_closed = False
        self._commits = 0
        self.problem = ""  # why the last commit failed; empty once one succeeds
        # joined by `close`; a daemon, so that a program that never closes it can end: reported rows are committed
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    async def do(self, work: Callable[[Transaction], Result], *, is_synced: bool = False) -> Result:
        """The result of `work`, once its rows are committed; with `is_synced`, once they are on the disk.

        The work cannot be cancelled: if the caller is, the rows are written anyway.
        """
        return await self.begin(work, is_synced=is_synced)

    def begin(self, work: Callable[[Transaction], Result], *, is_synced: bool = False) -> asyncio.Future[Result]:
        """As `do`, without waiting: the work is done after all that was queued before, and before later work."""
        return self._queued(work, is_synced=is_synced)

    async def alone(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """The result of `work`, done outside of any transaction; other writes wait meanwhile."""
        return await self._queued(lambda transaction: work(transaction.sql), is_alone=True)

    def _queued(
        self, work: Callable[[Transaction], Result], *, is_synced: bool = False, is_alone: bool = False
    ) -> asyncio.Future[Result]:
        if self._is_closed:
            raise StoreError("the store is closed", fix="nothing is lost: every acknowledged turn is stored")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()

        def run(transaction: Transaction) -> Callable[[], None]:
            result = work(transaction)
            return lambda: None if future.done() else future.set_result(result)

        def fail(problem: Exception) -> None:
            if not future.done():
                future.set_exception(problem)

        self._queue.put(_Job(run, fail, is_synced, loop, lambda: None, is_alone))
        return future

    @property
    def waiting(self) -> int:
        """Pieces of work that no transaction has begun yet."""
        return self._queue.qsize()

    def close(self) -> None:
        """Finishes what is queued, joins the thread and closes the connection. Blocks."""
        if self._is_closed:
            return
        self._is_closed = True
        self._queue.put(None)
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        is_open = True
        while is_open:
            if self._commits >= CHECKPOINT_FROM_COMMITS and self._queue.empty():
                self._checkpoint()
            jobs: list[_Job] = []
            item = self._queue.get()
            while item is not None:
                jobs.append(item)
                if item.is_alone or len(jobs) == MOST_PER_COMMIT or self._queue.empty():
                    break
                item = self._queue.get()
            is_open = item is not None
            alone = jobs.pop() if jobs and jobs[-1].is_alone else None
            if jobs:
                self._commit(jobs)
            if alone is not None:
                self._do_alone(alone)

    def _do_alone(self, job: _Job) -> None:
        try:
            job.settle = job.run(Transaction(self._connection))
        except Exception as problem:  # the caller gets it
            job.refuse(in_plain_words(problem) if isinstance(problem, sqlite3.Error) else problem)
        self._tell(job.loop, [job], Transaction(self._connection))

    def _commit(self, jobs: list[_Job]) -> None:
        transaction = Transaction(self._connection)
        try:
            self._transact(transaction, jobs)
        except Exception as problem:  # every caller gets it; the thread continues
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            transaction.moved.clear()
            transaction.events.clear()
            said = in_plain_words(problem) if isinstance(problem, sqlite3.Error | UnicodeDecodeError) else problem
            self.problem = str(said)
            for job in jobs:
                job.refuse(said)
        else:
            self.problem = ""
        self._commits += 1
        by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
        for job in jobs:
            by_loop.setdefault(job.loop, []).append(job)
        for loop, theirs in by_loop.items():
            self._tell(loop, theirs, transaction)

    def _transact(self, transaction: Transaction, jobs: list[_Job]) -> None:
        """One transaction for all jobs. With FULL, the commit syncs the log, and with it all earlier commits."""
        level = "FULL" if any(job.is_synced for job in jobs) else "NORMAL"
        self._connection.execute(f"PRAGMA synchronous={level}")
        self._connection.execute("BEGIN IMMEDIATE")
        for job in jobs:
            job.attempt(transaction)
        self._connection.execute("COMMIT")

    def _tell(self, loop: asyncio.AbstractEventLoop, jobs: list[_Job], transaction: Transaction) -> None:
        def settle() -> None:
            if transaction.moved:
                self._on_moved(transaction.moved)
            if transaction.events:
                self._listener(transaction.events)
            for job in jobs:
                job.settle()

        try:
            loop.call_soon_threadsafe(settle)
        except RuntimeError:  # the loop is gone, and with it the waiting callers; the rows are committed
            return

    def _checkpoint(self) -> None:
        """Moves the log into the file while nobody waits, so that no commit has to.

        If it fails, the log stays as it is, complete, and the next commit reports the disk's error.
        """
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        self._commits = 0


class Reader:
    """Reads on a separate connection and thread, so that they do not wait for writes.

    Each read sees all that was committed before it began, so a caller reads what it has written.

    Owns the reading connection and its thread.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store-reader")
        self._is_closed = False
        self.waiting = 0  # reads not answered yet; their callers wait, which bounds their number

    async def do(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """The result of `work`, which reads one state of the store."""
        if self._is_closed:
            raise StoreError("the store is closed")
        self.waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._read, work)
        finally:
            self.waiting -= 1

    def close(self) -> None:
        """Finishes what is queued, joins the thread and closes the connection. Blocks."""
        if self._is_closed:
            return
        self._is_closed = True
        self._thread.shutdown(wait=True)
        self._connection.close()

    def _read(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        try:
            self._connection.execute("BEGIN")
            try:
                return work(self._connection)
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("COMMIT")
        except (sqlite3.Error, UnicodeDecodeError) as problem:
            raise in_plain_words(problem) from problem
