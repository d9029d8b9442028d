"""Opening the file: modes, schema, version, a check for damage, and SQLite's errors in plain words."""

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
APPLICATION_ID = 0x4F43524C  # "OCRL", so that another program's file is not mistaken for a store
MAKE_STORE = (
    "restore store.db from a backup, or run `openclaw-rl check --repair`, which makes a store from the versions"
)
CHECK_UP_TO_BYTES = 512 << 20  # a full check reads the whole file; above this size an opening would take too long


def open_writer(path: Path) -> sqlite3.Connection:
    """The writing connection, on a complete store of this version.

    Raises StoreError if it is damaged, newer than this program, or cannot be written.
    """
    if path.is_dir():
        raise StoreError(f"{path} cannot be written: it is a folder, not a store", fix=MAKE_STORE)
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
    """A second connection, for reading only."""
    return _for_reading(str(path))


def open_to_look(path: Path) -> sqlite3.Connection:
    """A connection for reading while no server runs, also on a disk that is full or read-only. Raises StoreError."""
    uri, cannot_write = f"file:{quote(str(path))}", is_read_only(path.parent)
    try:
        connection = _for_reading(f"{uri}?mode=ro" if cannot_write else str(path), is_uri=cannot_write)
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except BaseException:
            connection.close()
            raise
    except (sqlite3.Error, UnicodeDecodeError) as problem:
        said, log = in_plain_words(problem, path), path.with_name(path.name + "-wal")
        has_log = log.exists() and log.stat().st_size > 0
        if has_log and cannot_write and isinstance(said, DiskError):
            raise DiskError(
                f"{log} holds the latest commits, and SQLite cannot read it on a disk without write access",
                fix="copy the whole folder to a writable disk, and give the copy with --home",
            ) from problem
        if has_log or not isinstance(said, DiskError):
            raise said from problem
        # SQLite makes a file next to the store to read it, unless an option says that nobody writes meanwhile.
        connection = _for_reading(f"{uri}?immutable=1", is_uri=True)
    return connection


def open_read_only(path: Path) -> sqlite3.Connection:
    """A connection for reading a complete store of this version. Nothing is made or migrated.

    Raises StoreError.
    """
    absent = absence(path)
    if absent:
        raise StoreError(absent, fix=MAKE_STORE)
    connection = open_to_look(path)
    try:
        _check(connection, path)
        version = _pragma(connection, "user_version")
    except (sqlite3.Error, UnicodeDecodeError) as problem:
        connection.close()
        raise in_plain_words(problem, path) from problem
    except StoreError:
        connection.close()
        raise
    if version < SCHEMA_VERSION:
        connection.close()
        raise StoreError(
            f"{path} was written by an older version of openclaw-rl (store version {version}, this program reads "
            f"{SCHEMA_VERSION})",
            fix="start the server once, or run `openclaw-rl check --repair`, on this folder or, if it cannot be "
            "written, on a copy of it: that brings the store up to date",
        )
    return connection


def absence(path: Path) -> str:
    """Why there is no store at this path; empty if one may be. An empty file must not be opened: that would fill it."""
    if path.is_dir():
        return f"{path} is a folder, not a store"
    if not path.exists():
        return f"{path} is missing"
    return "" if path.stat().st_size else f"{path} is empty"


def in_plain_words(problem: sqlite3.Error | UnicodeDecodeError, path: Path | None = None) -> StoreError:
    """A StoreError with what to do about an error of SQLite. Its message may contain bytes of a damaged file."""
    said = str(problem)
    if isinstance(problem, UnicodeDecodeError):
        return damaged("where text should stand there is none", path)
    is_unsure = "disk I/O" in said or "unable to open" in said  # a full disk may cause either
    folder = path.parent if path is not None and is_unsure else None
    if "full" in said or (folder is not None and is_full(folder)):
        return DiskError("the store cannot be written: the disk is full", fix=FREE_SPACE)
    if "readonly" in said or (folder is not None and is_read_only(folder)):
        return DiskError(f"the store cannot be written: {said}", fix="make the folder and store.db writable")
    if "disk I/O" in said:
        return DiskError(
            f"the store cannot be written: {said}", fix="free space on the disk, or repair it; nothing was half written"
        )
    if "unable to open" in said:
        where = path or Path("the store")
        return StoreError(f"{where} cannot be opened: {said}", fix="check the permissions of its folder")
    if "locked" in said or "busy" in said:
        return StoreError(
            f"the store is held by another program: {said}", fix="close the program that has store.db open"
        )
    return damaged(said, path)


def _for_reading(name: str, *, is_uri: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(name, isolation_level=None, check_same_thread=False, cached_statements=256, uri=is_uri)
    _adjust(connection)
    connection.execute("PRAGMA query_only=ON")
    return connection


def _adjust(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA mmap_size=0")  # a page that cannot be read must raise an error, not end the process


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
