"""What a pool server must know after it was killed: leases, operations with their results, and workers.

An operation is recorded before it is done, and its result afterwards. So a server killed in between knows that the
operation began, and does not repeat it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from openclaw_rl.core.disk import unwritable
from openclaw_rl.errors import DiskError, PoolError, StoreError
from openclaw_rl.store.lock import FolderLock

NAME = "pool.db"
APPLICATION_ID = 0x4F43504C  # "OCPL"
MAKE_ANOTHER = "move it away: a pool keeps nothing in it that cannot be made again"
SCHEMA = """
CREATE TABLE IF NOT EXISTS lives(number INTEGER PRIMARY KEY AUTOINCREMENT, pid INTEGER, began_s REAL);
CREATE TABLE IF NOT EXISTS workers(pid INTEGER, started TEXT, life INTEGER, place TEXT, PRIMARY KEY(pid, started));
CREATE TABLE IF NOT EXISTS leases(
  token INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, run TEXT, kind TEXT, task TEXT, worker INTEGER, life INTEGER,
  waited_s REAL, opened_s REAL, ended_s REAL, reason TEXT);
CREATE TABLE IF NOT EXISTS operations(
  id TEXT PRIMARY KEY, lease TEXT, call TEXT, request BLOB, life INTEGER, began_s REAL, ended_s REAL, status INTEGER,
  answer BLOB);
CREATE INDEX IF NOT EXISTS operations_by_lease ON operations(lease);
CREATE INDEX IF NOT EXISTS leases_open ON leases(ended_s) WHERE ended_s IS NULL;
"""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KeptOperation:
    """A recorded operation. `status` and `answer` are None until its result is known."""

    id: str
    lease: str
    call: str
    request: bytes
    life: int
    began_s: float
    ended_s: float | None
    status: int | None
    answer: bytes | None


@dataclass(frozen=True, slots=True)
class KeptLease:
    """A recorded lease."""

    token: int
    id: str
    run: str
    kind: str
    task: str
    worker: int
    life: int
    waited_s: float
    opened_s: float
    ended_s: float | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class KeptWorker:
    """A process that may have been left behind, identified by its pid and start time."""

    pid: int
    started: str
    place: str  # its folder of boxes without isolation; else empty


class Journal:
    """One server's journal, which locks the folder until closed. StoreError or DiskError if it cannot be opened."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._lock = FolderLock(folder)
        try:
            self._sql = self._opened()
        except BaseException:
            self._lock.free()
            raise
        self._turn = asyncio.Lock()

    def _opened(self) -> sqlite3.Connection:
        try:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as problem:
            raise unwritable(self._path, problem) from problem
        sql = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            (mark,) = sql.execute("PRAGMA application_id").fetchone()
            if mark not in (0, APPLICATION_ID):
                raise StoreError(f"{self._path} belongs to another program", fix=MAKE_ANOTHER)
            sql.execute("PRAGMA journal_mode=WAL")
            sql.execute(
                "PRAGMA synchronous=NORMAL"
            )  # a killed process's writes survive; boxes do not survive a power cut anyway
            sql.executescript(SCHEMA)
            sql.execute(f"PRAGMA application_id={APPLICATION_ID}")
            row = sql.execute("INSERT INTO lives(pid, began_s) VALUES(?, ?)", (os.getpid(), time.time()))
            assert row.lastrowid is not None
            self.life = row.lastrowid
        except sqlite3.Error as problem:
            sql.close()
            raise _in_words(self._path, problem) from problem
        except StoreError:
            sql.close()
            raise
        return sql

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        async with self._turn:
            try:
                return await asyncio.to_thread(work, self._sql)
            except sqlite3.Error as problem:
                said = _in_words(self._path, problem)
                raise PoolError(
                    said.problem, fix=said.fix, status=507, code="journal_failed", failure="infrastructure"
                ) from problem

    async def begin(self, name: str, *, lease: str, call: str, request: bytes) -> KeptOperation | None:
        """None if the operation is now recorded as begun; its record if it began before."""

        def work(sql: sqlite3.Connection) -> KeptOperation | None:
            fields = (name, lease, call, request, self.life, time.time())
            done = sql.execute(
                "INSERT OR IGNORE INTO operations(id, lease, call, request, life, began_s) VALUES(?, ?, ?, ?, ?, ?)",
                fields,
            )
            return None if done.rowcount else _operation(sql, name)

        return await self._do(work)

    async def finish(self, name: str, status: int, answer: bytes) -> None:
        """Records an operation's result."""
        fields = (time.time(), status, answer, name)
        await self._do(
            lambda sql: sql.execute("UPDATE operations SET ended_s=?, status=?, answer=? WHERE id=?", fields)
        )

    async def take_back(self, name: str) -> None:
        """Removes an operation of which nothing was done, so that it may be sent again."""
        await self._do(lambda sql: sql.execute("DELETE FROM operations WHERE id=?", (name,)))

    async def operation(self, name: str) -> KeptOperation | None:
        """The record of an operation."""
        return await self._do(lambda sql: _operation(sql, name))

    async def operations_of(self, lease: str) -> list[KeptOperation]:
        """All operations on a lease, in order."""
        return await self._do(
            lambda sql: [
                KeptOperation(*row)
                for row in sql.execute("SELECT * FROM operations WHERE lease=? ORDER BY began_s, rowid", (lease,))
            ]
        )

    async def open_lease(self, name: str, *, run: str, kind: str, task: str, worker: int, waited_s: float) -> int:
        """The fencing token of a new lease: greater than any before."""

        def work(sql: sqlite3.Connection) -> int:
            row = sql.execute(
                "INSERT INTO leases(id, run, kind, task, worker, life, waited_s, opened_s) VALUES(?,?,?,?,?,?,?,?)",
                (name, run, kind, task, worker, self.life, waited_s, time.time()),
            )
            assert row.lastrowid is not None
            return row.lastrowid

        return await self._do(work)

    async def end_lease(self, name: str, reason: str) -> None:
        """Records the end of a lease and the reason."""
        fields = (time.time(), reason, name)
        await self._do(
            lambda sql: sql.execute("UPDATE leases SET ended_s=?, reason=? WHERE id=? AND ended_s IS NULL", fields)
        )

    async def lease(self, name: str) -> KeptLease | None:
        """The record of a lease."""

        def work(sql: sqlite3.Connection) -> KeptLease | None:
            row = sql.execute("SELECT * FROM leases WHERE id=?", (name,)).fetchone()
            return None if row is None else KeptLease(*row)

        return await self._do(work)

    async def end_all(self, reason: str) -> int:
        """Ends every lease that an earlier server left open; returns their number."""
        fields = (time.time(), reason, self.life)
        return await self._do(
            lambda sql: (
                sql.execute("UPDATE leases SET ended_s=?, reason=? WHERE ended_s IS NULL AND life<?", fields).rowcount
            )
        )

    async def open_count(self) -> int:
        """How many leases are open."""
        (count,) = await self._do(
            lambda sql: sql.execute("SELECT count(*) FROM leases WHERE ended_s IS NULL").fetchone()
        )
        return int(count)

    async def add_worker(self, worker: KeptWorker) -> None:
        """Records a process that the next server must end if this one is killed."""
        fields = (worker.pid, worker.started, self.life, worker.place)
        await self._do(lambda sql: sql.execute("INSERT OR REPLACE INTO workers VALUES(?, ?, ?, ?)", fields))

    async def workers(self) -> list[KeptWorker]:
        """Every process noted."""
        return await self._do(
            lambda sql: [KeptWorker(*row) for row in sql.execute("SELECT pid, started, place FROM workers")]
        )

    async def remove_worker(self, worker: KeptWorker) -> None:
        """Removes the record of a process that is gone."""
        fields = (worker.pid, worker.started)
        await self._do(lambda sql: sql.execute("DELETE FROM workers WHERE pid=? AND started=?", fields))

    async def prune(self, keep_s: float) -> None:
        """Removes records of what ended longer ago."""
        before = time.time() - keep_s

        def work(sql: sqlite3.Connection) -> None:
            sql.execute("DELETE FROM leases WHERE ended_s<?", (before,))
            sql.execute(
                "DELETE FROM operations WHERE coalesce(ended_s, began_s)<? AND lease NOT IN (SELECT id FROM leases)",
                (before,),
            )

        await self._do(work)

    def close(self) -> None:
        """Releases the folder for another server."""
        with contextlib.suppress(sqlite3.Error):
            self._sql.close()
        self._lock.free()


def _operation(sql: sqlite3.Connection, name: str) -> KeptOperation | None:
    row = sql.execute("SELECT * FROM operations WHERE id=?", (name,)).fetchone()
    return None if row is None else KeptOperation(*row)


def _in_words(path: Path, problem: sqlite3.Error) -> StoreError:
    said = str(problem)
    if "full" in said or "disk I/O" in said:
        return DiskError(f"the pool's journal {path} cannot be written: {said}", fix="free space on the disk")
    if "not a database" in said or "malformed" in said:
        return StoreError(f"the pool's journal {path} is damaged: {said}", fix=MAKE_ANOTHER)
    return DiskError(f"the pool's journal {path} cannot be used: {said}", fix="check that the folder can be written")
