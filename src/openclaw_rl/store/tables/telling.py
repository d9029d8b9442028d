"""Requests whose replies showed that a version in service was damaged: the next versions are tried on them first."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from openclaw_rl.store.codec import plain
from openclaw_rl.store.threads import Reader, Writer


class TellingBook:
    """The turns of these requests. A turn that is forgotten is not among them any more."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    async def add(self, turns: Iterable[str]) -> None:
        """From now on these turns are known as telling ones; returns once that is committed."""
        names = [plain(turn) for turn in turns]
        await self._writer.do(lambda tx: add(tx.sql, names))

    async def newest(self, *, limit: int) -> list[str]:
        """Those that were found last, newest first."""
        return await self._reader.do(lambda sql: newest(sql, limit))


def add(sql: sqlite3.Connection, turns: Iterable[str]) -> None:
    """As `TellingBook.add`."""
    # A turn that was forgotten meanwhile is left out.
    where = "SELECT id FROM turns WHERE id = ? ON CONFLICT DO NOTHING"
    sql.executemany(f"INSERT INTO telling (turn) {where}", [(turn,) for turn in turns])


def newest(sql: sqlite3.Connection, limit: int) -> list[str]:
    """As `TellingBook.newest`."""
    rows = sql.execute("SELECT turn FROM telling ORDER BY seq DESC LIMIT ?", (limit,)).fetchall()
    return [str(row[0]) for row in rows]
