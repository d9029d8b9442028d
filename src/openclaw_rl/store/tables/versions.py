"""Versions as rows, and which of them is served.

A row says that a version has a folder, not where: folders are in `versions/` next to the store, wherever that is now.
So a home folder that was copied or moved has its own versions, and never uses those of another.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from openclaw_rl.core.event import EventKind, StoreEvent
from openclaw_rl.core.manifest import version_folder
from openclaw_rl.core.message import Json
from openclaw_rl.core.version import BASE, PolicyVersion, parse_version
from openclaw_rl.errors import StoreError
from openclaw_rl.store import codec, connection
from openclaw_rl.store.codec import listed, plain
from openclaw_rl.store.rows import VersionRow, VersionStatus
from openclaw_rl.store.threads import Transaction

COLUMNS = (
    "scope, number, parent_scope, parent_number, folder, digest, status, why, made_s, turns, metrics, upon, rehearsed, "
    "pruned_s"
)


def opened(path: Path) -> sqlite3.Connection:
    """The writing connection, on a store that has at least the base model."""
    writing = connection.open_writer(path)
    try:
        if get(writing, BASE) is None:
            base = VersionRow(BASE, None, None, "", VersionStatus.LIVE, "the base model", time.time())
            insert(writing, base)
    except sqlite3.Error as problem:
        writing.close()
        raise connection.in_plain_words(problem, path) from problem
    except StoreError:
        writing.close()
        raise
    return writing


def insert(sql: sqlite3.Connection, row: VersionRow) -> None:
    """Enters a version. Raises ValueError if its number is taken: versions never change."""
    if get(sql, row.version) is not None:
        raise ValueError(f"version {row.version} exists already")
    turns: list[Json] = list(row.turns)
    sql.execute(
        f"INSERT INTO versions ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            row.version.scope,
            row.version.number,
            None if row.parent is None else row.parent.scope,
            None if row.parent is None else row.parent.number,
            _folder_text(sql, row),
            row.digest,
            row.status.value,
            plain(row.why),
            row.made_s,
            codec.pack_json(turns),
            codec.metrics_text(row.metrics),
            None if row.upon is None else str(row.upon),
            codec.pack_json(list(row.rehearsed)) if row.rehearsed else None,
            row.pruned_s,
        ),
    )


def get(sql: sqlite3.Connection, version: PolicyVersion) -> VersionRow | None:
    """The row of this version."""
    return find(sql, version.scope, version.number)


def find(sql: sqlite3.Connection, scope: str, number: int) -> VersionRow | None:
    """The row of the version with these two columns."""
    row = sql.execute(f"SELECT {COLUMNS} FROM versions WHERE scope = ? AND number = ?", (scope, number)).fetchone()
    return None if row is None else _row_of(row, home_of(sql))


def everything(sql: sqlite3.Connection) -> list[VersionRow]:
    """All versions, oldest first."""
    home = home_of(sql)
    return [_row_of(row, home) for row in sql.execute(f"SELECT {COLUMNS} FROM versions ORDER BY seq")]


def candidates(sql: sqlite3.Connection) -> list[VersionRow]:
    """The versions that wait at the gate, oldest first."""
    rows = sql.execute(
        f"SELECT {COLUMNS} FROM versions WHERE status = ? ORDER BY seq", (VersionStatus.CANDIDATE.value,)
    )
    home = home_of(sql)
    return [_row_of(row, home) for row in rows]


def newest_of(sql: sqlite3.Connection, status: VersionStatus, most: int) -> list[VersionRow]:
    """The newest versions in this status, at most this many; oldest first."""
    asked = f"SELECT {COLUMNS} FROM versions WHERE status = ? ORDER BY seq DESC LIMIT ?"
    home = home_of(sql)
    return [_row_of(row, home) for row in reversed(sql.execute(asked, (status.value, most)).fetchall())]


def of_scope(sql: sqlite3.Connection, scope: str) -> list[VersionRow]:
    """The versions of a scope, by number."""
    rows = sql.execute(f"SELECT {COLUMNS} FROM versions WHERE scope = ? ORDER BY number", (plain(scope),))
    home = home_of(sql)
    return [_row_of(row, home) for row in rows]


def newest_live(sql: sqlite3.Connection, upto: PolicyVersion, most: int) -> list[PolicyVersion]:
    """The newest versions of a scope that have been live, up to this one; at most this many."""
    rows = sql.execute(
        "SELECT number FROM versions WHERE scope = ? AND number <= ? AND status = ? ORDER BY number DESC LIMIT ?",
        (plain(upto.scope), upto.number, VersionStatus.LIVE.value, most),
    )
    return [PolicyVersion(upto.scope, int(row[0])) for row in rows]


def last_number(sql: sqlite3.Connection, scope: str) -> int:
    """The highest number of a scope's versions; 0 if there is none."""
    row = sql.execute("SELECT MAX(number) FROM versions WHERE scope = ?", (plain(scope),)).fetchone()
    return int(row[0] or 0)


def line(sql: sqlite3.Connection, version: PolicyVersion, most: int) -> list[VersionRow]:
    """A version and those it was made from, newest first, at most this many."""
    found: list[VersionRow] = []
    row = get(sql, version)
    while row is not None and len(found) < most:
        found.append(row)
        row = None if row.parent is None else get(sql, row.parent)
    return found


def settle(
    sql: sqlite3.Connection, version: PolicyVersion, status: VersionStatus, why: str, metrics: dict[str, float]
) -> None:
    """LIVE or REFUSED with the reason; metrics are added to what the step wrote."""
    row = get(sql, version)
    if row is None:
        raise ValueError(f"there is no version {version}")
    sql.execute(
        "UPDATE versions SET status = ?, why = ?, metrics = ? WHERE scope = ? AND number = ?",
        (status.value, plain(why), codec.metrics_text(row.metrics | metrics), version.scope, version.number),
    )


def decide(
    transaction: Transaction, version: PolicyVersion, status: VersionStatus, why: str, metrics: dict[str, float]
) -> None:
    """As `settle`, in a server; listeners are informed of the gate's decision."""
    row = get(transaction.sql, version)
    settle(transaction.sql, version, status, why, metrics)
    if row is not None and row.status is VersionStatus.CANDIDATE:
        facts: dict[str, Json] = {"status": status.value, "metrics": dict(metrics)}
        transaction.events.append(StoreEvent(EventKind.GATE, row.turns, version, row.made_s, facts))


def current(sql: sqlite3.Connection, scope: str) -> PolicyVersion:
    """The version being served; the base model until another was set."""
    row = sql.execute("SELECT number FROM current WHERE scope = ?", (plain(scope),)).fetchone()
    return PolicyVersion(scope, 0 if row is None else int(row[0]))


def set_current(sql: sqlite3.Connection, version: PolicyVersion, why: str) -> None:
    """From now on this version is served. Raises ValueError for one that did not pass the gate or has no weights."""
    if not version.is_base:
        row = get(sql, version)
        if row is None or row.status is not VersionStatus.LIVE:
            raise ValueError(f"version {version} is {'unknown' if row is None else row.status} and cannot be served")
        if row.pruned_s is not None:
            raise ValueError(f"version {version} has no weights any more and cannot be served")
    sql.execute(
        "INSERT INTO current VALUES (?, ?, ?) ON CONFLICT (scope) DO UPDATE SET number = excluded.number, "
        "why = excluded.why",
        (version.scope, version.number, plain(why)),
    )


def serve(transaction: Transaction, version: PolicyVersion, why: str) -> None:
    """As `set_current`, in a server: listeners are informed."""
    set_current(transaction.sql, version, why)
    row = get(transaction.sql, version)
    transaction.events.append(StoreEvent(EventKind.SERVED, () if row is None else row.turns, version))


def of_step(sql: sqlite3.Connection, step: str) -> PolicyVersion | None:
    """The version a step made."""
    row = sql.execute("SELECT scope, number FROM steps WHERE id = ?", (step,)).fetchone()
    return None if row is None or row[0] is None else PolicyVersion(str(row[0]), int(row[1]))


def prune(sql: sqlite3.Connection, version: PolicyVersion, at_s: float | None) -> None:
    """Records when a version's weights were removed to save room; None once they are there again."""
    sql.execute(
        "UPDATE versions SET pruned_s = ? WHERE scope = ? AND number = ?", (at_s, version.scope, version.number)
    )


def give_up(sql: sqlite3.Connection, version: PolicyVersion, why: str) -> None:
    """REFUSED for good: the turns of its step count for the version that replaces it."""
    sql.execute(
        "UPDATE versions SET status = ?, why = ?, turns = ?, rehearsed = NULL, pruned_s = NULL "
        "WHERE scope = ? AND number = ?",
        (VersionStatus.REFUSED.value, plain(why), codec.pack_json([]), version.scope, version.number),
    )


def home_of(sql: sqlite3.Connection) -> Path:
    """The folder of the store's file."""
    return Path(str(sql.execute("PRAGMA database_list").fetchone()[2])).parent


def _folder_text(sql: sqlite3.Connection, row: VersionRow) -> str | None:
    """The column `folder`: the version's path relative to the home folder. Raises ValueError for any other place."""
    if row.folder is None:
        return None
    home = home_of(sql)
    own = version_folder(home, row.version)
    if row.folder.resolve() != own.resolve():
        raise ValueError(f"version {row.version} is in {row.folder}, not in {own}")
    return str(own.relative_to(home))


def _row_of(row: Sequence[object], home: Path) -> VersionRow:
    with codec.reading(f"version {row[0]}.{row[1]}"):
        scope, number, parent_scope, parent_number, folder, digest, status, why, made_s, turns, metrics, upon, again = (
            row[:-1]
        )
        pruned_s = row[-1]
        assert isinstance(turns, bytes) and isinstance(again, bytes | None)
        version = PolicyVersion(str(scope), int(str(number)))
        return VersionRow(
            version=version,
            parent=None if parent_scope is None else PolicyVersion(str(parent_scope), int(str(parent_number))),
            folder=None if folder is None else version_folder(home, version),
            digest=str(digest),
            status=VersionStatus(str(status)),
            why=str(why),
            made_s=codec.real(made_s),
            turns=tuple(str(turn) for turn in listed(codec.unpack_json(turns))),
            metrics=codec.metrics_of(str(metrics)),
            rehearsed=() if again is None else tuple(str(turn) for turn in listed(codec.unpack_json(again))),
            upon=None if upon is None else parse_version(str(upon)),
            pruned_s=None if pruned_s is None else codec.real(pruned_s),
        )


def lineage(rows: Sequence[VersionRow], heads: Iterable[PolicyVersion]) -> list[VersionRow]:
    """These versions and all that they were made from or are based on, oldest first, without base models."""
    by_version = {row.version: row for row in rows}
    wanted: set[PolicyVersion] = set()
    open_ones = list(heads)
    while open_ones:
        version = open_ones.pop()
        row = by_version.get(version)
        if version.is_base or version in wanted or row is None:
            continue
        wanted.add(version)
        open_ones += [item for item in (row.parent, row.upon) if item is not None]
    return [row for row in rows if row.version in wanted]
