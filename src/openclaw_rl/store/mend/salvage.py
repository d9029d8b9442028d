"""Rebuilds a damaged store from the rows that can still be read; the old file is put aside, never removed."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.core.inside import move_aside, place_aside
from openclaw_rl.errors import StoreError
from openclaw_rl.store.connection import NAME, open_writer
from openclaw_rl.store.mend.pages import DatabasePages, PageRow, Tree, Value, rows_of

LOGS = ("-wal", "-shm")
UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
# Their rows look like those of an index or of each other: they are read only if their tree can be followed.
WITHOUT_SHAPE = ("exports", "judge_calls", "freezes")
KINDS = {"TEXT": (str,), "INTEGER": (int,), "REAL": (int, float), "BLOB": (bytes,)}


@dataclass(frozen=True, slots=True)
class SalvageResult:
    """How many rows were copied, and where the old file is now."""

    rows: int
    aside: Path


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    kind: str
    is_needed: bool
    is_rowid: bool  # then its value is stored outside the record


@dataclass(frozen=True, slots=True)
class _Table:
    """The shape of a table's rows in a page."""

    columns: tuple[_Column, ...]
    has_rowid: bool

    def fits(self, record: PageRow) -> bool:
        """Whether this may be a row of the table. A column that was added later is missing in older rows."""
        missing = self.columns[len(record.values) :]
        if self.has_rowid != (record.rowid is not None) or len(record.values) > len(self.columns):
            return False
        if missing and (not self.has_rowid or any(column.is_needed for column in missing)):
            return False
        return all(_may_hold(column, value) for column, value in zip(self.columns, record.values, strict=False))

    def named(self, record: PageRow) -> dict[str, Value]:
        """The values of a row by their columns."""
        held = zip(self.columns, record.values, strict=False)
        return {column.name: record.rowid if column.is_rowid else value for column, value in held}


def salvage(home: Path, path: Path, *, at_s: float) -> SalvageResult:
    """Puts the file aside and fills a new one. Raises StoreError if that fails."""
    aside = move_aside(home, path, at_s=at_s)
    for suffix in LOGS:
        log = path.with_name(path.name + suffix)
        if log.exists():
            log.rename(aside.with_name(aside.name + suffix))
    new = open_writer(path)
    try:
        return SalvageResult(0 if aside.is_dir() else _carried(aside, new), aside)
    finally:
        new.close()


def copy_aside(home: Path, sql: sqlite3.Connection, *, at_s: float) -> Path:
    """A copy of an open store, put aside before its rows are repaired. Raises StoreError if there is no room."""
    place = place_aside(home, NAME, at_s=at_s)
    try:
        with contextlib.closing(sqlite3.connect(place)) as copy:
            sql.backup(copy)
        place.chmod(0o600)
    except (sqlite3.Error, OSError) as problem:
        place.unlink(missing_ok=True)
        raise StoreError(
            f"the store cannot be copied to {place} before it is repaired: {problem}", fix="free space on the disk"
        ) from problem
    return place


def drop_parentless(sql: sqlite3.Connection, table: str) -> int:
    """Removes the rows of a table whose parent row is missing, and returns how many."""
    gone = 0
    for _, _, parent, column, key, *_ in sql.execute(f"PRAGMA foreign_key_list({table})").fetchall():
        gone += sql.execute(
            f"DELETE FROM {table} WHERE {column} IS NOT NULL AND {column} NOT IN (SELECT {key} FROM {parent})"
        ).rowcount
    return gone


def _carried(aside: Path, new: sqlite3.Connection) -> int:
    """Copies all rows that can be read and fit, and removes those without a parent row; returns how many remain."""
    try:
        file = DatabasePages(aside)
    except OSError as problem:
        raise StoreError(
            f"{aside} cannot be read: {problem.strerror}",
            fix="check whether the disk is failing; the original file is still complete there",
        ) from problem
    with contextlib.closing(file):
        tables = {str(name): _table(new, str(name)) for (name,) in new.execute(TABLES).fetchall()}
        held = _held(file)
        old = {name: (_table_of(held[name][1]) if name in held else None) or own for name, own in tables.items()}
        trees = {
            name: Tree(held[name][0] if name in held else 0, table.fits, name not in WITHOUT_SHAPE)
            for name, table in old.items()
        }
        new.execute("PRAGMA foreign_keys=OFF")
        new.execute("BEGIN IMMEDIATE")
        carried = 0
        for name, record in rows_of(file, trees):
            values = old[name].named(record)
            shared = [column.name for column in tables[name].columns if column.name in values]
            statement = f"INSERT OR IGNORE INTO {name} ({', '.join(shared)}) VALUES ({', '.join('?' * len(shared))})"
            with contextlib.suppress(*UNREADABLE):
                carried += new.execute(statement, [values[column] for column in shared]).rowcount
    carried -= sum(drop_parentless(new, name) for name in tables)
    new.execute("COMMIT")
    return carried


def _held(file: DatabasePages) -> dict[str, tuple[int, str]]:
    """The tables in the file: the root page of each tree, and the statement that made it."""
    found: dict[str, tuple[int, str]] = {}
    schema = Tree(1, lambda record: len(record.values) == 5, is_known_by_shape=False)
    for _, record in rows_of(file, {"sqlite_master": schema}):
        kind, name, _, root, statement = record.values
        if kind == "table" and isinstance(name, str) and isinstance(root, int) and isinstance(statement, str):
            found.setdefault(name, (root, statement))
    return found


def _table_of(statement: str) -> _Table | None:
    """The table that a statement makes; None if it is not such a statement."""
    with contextlib.closing(sqlite3.connect(":memory:")) as sql:
        try:
            if not statement.lstrip().upper().startswith("CREATE TABLE"):
                return None
            sql.execute(statement)
            return _table(sql, str(sql.execute(TABLES).fetchone()[0]))
        except (*UNREADABLE, TypeError):
            return None


def _table(sql: sqlite3.Connection, name: str) -> _Table:
    made_by = str(sql.execute("SELECT sql FROM sqlite_master WHERE name = ?", (name,)).fetchone()[0])
    has_rowid = "WITHOUT ROWID" not in made_by.upper()
    rows = sql.execute(f"PRAGMA table_info({name})").fetchall()
    keys = sum(1 for row in rows if row[5])
    columns = []
    for _, column, kind, is_set, _, key in rows:
        is_rowid = has_rowid and keys == 1 and bool(key) and str(kind).upper() == "INTEGER"
        is_needed = (bool(is_set) or (bool(key) and not has_rowid)) and not is_rowid
        columns.append(_Column(str(column), str(kind).upper(), is_needed, is_rowid))
    return _Table(tuple(columns), has_rowid)


def _may_hold(column: _Column, value: Value) -> bool:
    if value is None or column.is_rowid:
        return value is None and not column.is_needed
    return isinstance(value, KINDS.get(column.kind, (object,)))
