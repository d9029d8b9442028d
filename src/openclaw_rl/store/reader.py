"""Reads on a connection and a thread of their own, so that they do not wait for writes.

Each read sees all that was committed before it began, so a caller reads what it has written.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from openclaw_rl.errors import StoreError
from openclaw_rl.store.connection import in_plain_words

Result = TypeVar("Result")


class Reader:
    """Owns the reading connection and its thread."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store-reader")
        self._is_closed = False
        self.waiting = 0  # reads asked for and not answered; their askers wait, so there are no more than those

    async def do(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """What `work` read, all of it from one state of the store."""
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
