"""A damaged store made new from whatever can still be read of it; the old file is put aside, never removed."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.errors import StoreError
from openclaw_rl.store.connection import open_writer

LOGS = ("-wal", "-shm")
MOST_GAPS = 10_000  # unreadable places that are stepped over in one table
CHUNK = 64
UNREADABLE = (sqlite3.Error, UnicodeDecodeError)


@dataclass(frozen=True, slots=True)
class Salvaged:
    """How many rows were carried over, and where the old file lies now."""

    rows: int
    aside: Path


def salvage(path: Path, *, at_s: float) -> Salvaged:
    """Puts the file aside under another name and fills a new one. Raises StoreError where that cannot be done."""
    aside = path.with_name(f"{path.name}.damaged-{int(at_s)}")
    try:
        for suffix in ("", *LOGS):
            with contextlib.suppress(FileNotFoundError):
                path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
        new = open_writer(path)
    except OSError as problem:
        raise StoreError(f"{path} cannot be put aside: {problem.strerror}", fix="make the folder writable") from problem
    try:
        return Salvaged(_carried(aside, new), aside)
    finally:
        new.close()


def _carried(aside: Path, new: sqlite3.Connection) -> int:
    """Table by table, in the order in which they refer to each other; a row that does not fit any more is left out."""
    tables = [str(row[0]) for row in new.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid")]
    carried = 0
    new.execute("PRAGMA foreign_keys=OFF")
    new.execute("BEGIN IMMEDIATE")
    for table in tables:
        names = [str(row[1]) for row in new.execute(f"PRAGMA table_info({table})")]
        statement = f"INSERT OR IGNORE INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        for row in _rows(aside, table, names):
            with contextlib.suppress(*UNREADABLE):
                carried += new.execute(statement, row).rowcount
    for table, rowid, _, _ in new.execute("PRAGMA foreign_key_check").fetchall():
        if rowid is not None:
            new.execute(f"DELETE FROM {table} WHERE rowid = ?", (rowid,))
    new.execute("COMMIT")
    return carried


def _rows(aside: Path, table: str, names: list[str]) -> Iterator[tuple[object, ...]]:
    """The readable rows of a table, stepping over what cannot be read."""
    columns = ", ".join(names)
    try:
        old = sqlite3.connect(f"file:{aside}?mode=rw", uri=True, isolation_level=None)
    except UNREADABLE:
        return
    with contextlib.closing(old):
        try:
            old.execute("PRAGMA writable_schema=ON")  # a schema that is partly broken is read as far as it goes
            is_numbered = "WITHOUT ROWID" not in _schema(old, table)
            if not is_numbered:
                yield from old.execute(f"SELECT {columns} FROM {table}")
                return
        except UNREADABLE:
            return
        last, gap = -1, 1
        for _ in range(MOST_GAPS):
            asked = f"SELECT rowid, {columns} FROM {table} WHERE rowid > ? ORDER BY rowid LIMIT {CHUNK}"
            try:
                count = 0
                for rowid, *values in old.execute(asked, (last,)):
                    last, gap, count = int(rowid), 1, count + 1
                    yield tuple(values)
                if count < CHUNK:
                    return
            except UNREADABLE:
                last, gap = last + gap, gap * 2
                if last > 2**62:
                    return


def _schema(old: sqlite3.Connection, table: str) -> str:
    row = old.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    return "" if row is None else str(row[0])
