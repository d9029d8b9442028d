"""Opening the file: modes, schema, version and a check for damage, and SQLite's errors in plain words."""

from __future__ import annotations

import os
import sqlite3
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

from openclaw_rl.core.disk import FREE_SPACE, is_full, is_read_only, unwritable
from openclaw_rl.errors import DiskError, StoreError
from openclaw_rl.store.codec import damaged
from openclaw_rl.store.migrations import NEWEST, migrate

NAME = "store.db"
SCHEMA_VERSION = NEWEST
APPLICATION_ID = 0x4F43524C  # "OCRL", so that another program's file is not taken for a store
CHECK_UP_TO_BYTES = 512 << 20  # a full check reads the whole file; above this size an opening would take too long


def open_writer(path: Path) -> sqlite3.Connection:
    """The connection that writes, on a file that is whole, ours and of this version.

    Raises StoreError where it is damaged, newer than this program, or cannot be written.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        path.chmod(0o600)
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
    except OSError as problem:
        raise unwritable(path, problem) from problem
    try:
        _adjust(connection)
        _check(connection, path)
        connection.execute("PRAGMA journal_mode=WAL")
        if _pragma(connection, "user_version") == 0:
            _make(connection)
        migrate(connection, _pragma(connection, "user_version"))
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA wal_autocheckpoint=8192")  # the writer checkpoints when idle, long before this
    except (sqlite3.Error, UnicodeDecodeError) as problem:
        connection.close()
        raise in_plain_words(problem, path) from problem
    except StoreError:
        connection.close()
        raise
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """A second connection, for reading alone."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
    _adjust(connection)
    connection.execute("PRAGMA query_only=ON")
    return connection


def open_to_look(path: Path) -> sqlite3.Connection:
    """A connection for reading where no server runs, also on a disk that is full or read-only. Raises StoreError."""
    try:
        connection = open_reader(path)
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except (sqlite3.Error, UnicodeDecodeError) as problem:
        told, log = in_plain_words(problem, path), path.with_name(path.name + "-wal")
        if not isinstance(told, DiskError) or (log.exists() and log.stat().st_size):
            raise told from problem
        # SQLite makes a file beside the store to read it, unless it is told that nobody writes meanwhile.
        connection = sqlite3.connect(f"file:{quote(str(path))}?immutable=1", uri=True, isolation_level=None)
        connection.execute("PRAGMA query_only=ON")
    return connection


def in_plain_words(problem: sqlite3.Error | UnicodeDecodeError, path: Path | None = None) -> StoreError:
    """What a person can do about an error of SQLite's. Its words may hold what stands in a damaged file: no text."""
    said = str(problem)
    if isinstance(problem, UnicodeDecodeError):
        return damaged("where text should stand there is none", path)
    is_unsure = "disk I/O" in said or "unable to open" in said  # a full disk may be behind either
    folder = path.parent if path is not None and is_unsure else None
    if "full" in said or (folder is not None and is_full(folder)):
        return DiskError("the store cannot be written: the disk is full", fix=FREE_SPACE)
    if "readonly" in said or (folder is not None and is_read_only(folder)):
        return DiskError(f"the store cannot be written: {said}", fix="make the folder and store.db writable")
    if "disk I/O" in said:
        return DiskError(
            f"the store cannot be written: {said}", fix="free space on the disk, or mend it; nothing was half written"
        )
    if "unable to open" in said:
        where = path or Path("the store")
        return StoreError(f"{where} cannot be opened: {said}", fix="see who may read and write its folder")
    if "locked" in said or "busy" in said:
        return StoreError(f"the store is held by another program: {said}", fix="close whatever has store.db open")
    return damaged(said, path)


def _adjust(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA mmap_size=0")  # a page that cannot be read must be an error, not the end of the process


def _check(connection: sqlite3.Connection, path: Path) -> None:
    version = _pragma(connection, "user_version")
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if version == 0 and tables == 0:
        return  # a new file
    if _pragma(connection, "application_id") != APPLICATION_ID:
        raise StoreError(f"{path} is a database of another program", fix="give --home another folder")
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} was written by a newer version of openclaw-rl (store version {version}, "
            f"this program knows {SCHEMA_VERSION})",
            fix="upgrade openclaw-rl, or give --home another folder",
        )
    if path.stat().st_size <= CHECK_UP_TO_BYTES:
        found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
        if found != "ok":
            raise damaged(found, path)


def _make(connection: sqlite3.Connection) -> None:
    schema = files("openclaw_rl.store").joinpath("schema.sql").read_text("utf-8")
    connection.executescript(
        f"BEGIN IMMEDIATE;\n{schema}\n"
        f"PRAGMA application_id={APPLICATION_ID};\nPRAGMA user_version={SCHEMA_VERSION};\nCOMMIT;"
    )


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
