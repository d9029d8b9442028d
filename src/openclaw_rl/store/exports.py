"""Exported records: the files they were written to, and a snapshot of the store to export from, read in pieces."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from openclaw_rl.core.to_end import to_end
from openclaw_rl.store.codec import plain
from openclaw_rl.store.connection import in_plain_words, open_reader, open_to_look
from openclaw_rl.store.tables import turns, versions
from openclaw_rl.store.threads import Transaction, Writer

Result = TypeVar("Result")


class StoreSnapshot:
    """One state of the store on a separate connection: later writes are not in it, and are not delayed by it.

    One read at a time.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()  # the caller may be gone while its read still runs

    async def do(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """The result of `work`. Raises StoreError."""
        return await asyncio.to_thread(self._read, work)

    def close(self) -> None:
        """Ends it, after the current read. Blocks."""
        with self._lock:
            self._connection.close()

    def _read(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        with self._lock:
            try:
                return work(self._connection)
            except (sqlite3.Error, UnicodeDecodeError) as problem:
                raise in_plain_words(problem) from problem


class ExportBook:
    """The files that records were exported to."""

    def __init__(self, writer: Writer, path: Path, *, is_alone: bool) -> None:
        self._writer = writer
        self._path = path
        self._opened = open_to_look if is_alone else open_reader  # nobody writes meanwhile, or only this program does

    async def note(self, path: Path, *, at_s: float) -> None:
        """Remembers the file that records are written to: as a path relative to the home folder if it is inside."""

        def work(tx: Transaction) -> None:
            home, full = versions.home_of(tx.sql), path.resolve()
            kept = full.relative_to(home) if full.is_relative_to(home) else full
            tx.sql.execute("INSERT OR REPLACE INTO exports VALUES (?, ?)", (plain(str(kept)), at_s))

        await self._writer.do(work)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[StoreSnapshot]:
        """The store as it is now. Its log is not truncated before this ends."""
        snapshot = StoreSnapshot(await asyncio.to_thread(self._opened, self._path))
        try:
            await snapshot.do(_begun)
            yield snapshot
        finally:
            await to_end(asyncio.to_thread(snapshot.close))  # else the log could not be truncated any more


def _begun(sql: sqlite3.Connection) -> None:
    sql.execute("BEGIN")
    turns.last_seq(sql)  # the first read fixes the state
