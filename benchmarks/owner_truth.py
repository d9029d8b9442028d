"""What is true of a home folder, read without the program: bytes, turns, versions, and what a command lost of them."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import tempfile
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from openclaw_rl.core.adapter import digest_of_folder
from openclaw_rl.core.manifest import Manifest, read_manifest
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import OpenClawRLError
from openclaw_rl.store.codec import unpack

STORE = ("store.db", "store.db-wal", "store.db-shm")
# What a server writes of itself while it runs; the rows of its store are compared instead.
OF_SERVER = frozenset({*STORE, "lock", "server.json", "keys_used.json"})
UNREADABLE = (sqlite3.Error, UnicodeDecodeError, OverflowError)
TABLES = ("turns", "verdicts", "samples", "lessons", "steps", "versions", "current", "hints", "forgettings", "exports")
PIECE = 64  # bytes
TABLES_OF_ORDERS = ("pins", "freezes")


@dataclass(frozen=True, slots=True)
class State:
    """What a folder holds: readable turns by id, live versions by name, sound version folders with their digest."""

    turns: dict[str, str] = field(default_factory=dict)  # id -> session
    rows: frozenset[str] = frozenset()  # names of versions that the store knows and has not refused
    folders: dict[str, str] = field(default_factory=dict)  # name -> digest
    manifests: dict[str, Manifest] = field(default_factory=dict)

    def saw(self, turns: Collection[str]) -> set[str]:
        """The versions that saw one of these turns, by themselves or by what they stand on."""
        found: set[str] = set()
        while True:
            more = {
                name
                for name, one in self.manifests.items()
                if set(turns) & {*one.turns, *one.rehearsed} or {str(one.parent), str(one.upon)} & found
            }
            if more == found:
                return found
            found = more


def prints(folder: Path, *, without: Collection[str] = ()) -> dict[str, str]:
    """Digest and time of every file, by its path; folders stand for themselves."""
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name in without:
            continue
        if path.is_file():
            with suppress(FileNotFoundError):
                found[name] = f"{hashlib.sha256(path.read_bytes()).hexdigest()} {path.stat().st_mtime_ns}"
        else:
            found[name] = "folder"
    return found


def changed(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """What differs, in words."""
    gone = [f"{name} is gone" for name in sorted(before.keys() - after.keys())]
    new = [f"{name} is new" for name in sorted(after.keys() - before.keys())]
    other = [f"{name} is another" for name in sorted(before.keys() & after.keys()) if before[name] != after[name]]
    return [*gone, *new, *other]


def rows_of(home: Path) -> dict[str, str]:
    """A digest of each table's rows."""
    found: dict[str, str] = {}
    with reading(home) as sql:
        for table in (*TABLES, *TABLES_OF_ORDERS):
            rows = sorted(repr(row) for row in sql.execute(f"SELECT * FROM {table}"))
            found[f"table {table}"] = hashlib.sha256("\n".join(rows).encode()).hexdigest()
    return found


@contextmanager
def reading(home: Path) -> Iterator[sqlite3.Connection]:
    """The store of a folder, opened in a copy: reading leaves traces beside a store."""
    with tempfile.TemporaryDirectory(prefix="owner-reading-") as place:
        for name in STORE[:2]:
            with suppress(OSError):
                shutil.copyfile(home / name, Path(place) / name)
        with closing(sqlite3.connect(Path(place) / "store.db")) as sql:
            yield sql


def state_of(home: Path) -> State:
    """What can be read of the folder, as it is now."""
    turns, rows = {}, frozenset[str]()
    with reading(home) as sql:
        with suppress(*UNREADABLE):
            turns = _turns(sql)
        with suppress(*UNREADABLE):
            listed = sql.execute("SELECT scope, number FROM versions WHERE status != 'refused' AND number > 0")
            rows = frozenset(f"{scope}.{number}" for scope, number in listed)
    manifests = dict(_manifests(home / "versions"))
    return State(turns, rows, {name: one.digest for name, one in manifests.items()}, manifests)


def _turns(sql: sqlite3.Connection) -> dict[str, str]:
    """Turns whose row and body can be read, from the front and from the back as far as that goes."""
    found: dict[str, str] = {}
    for order in ("ASC", "DESC"):
        with suppress(*UNREADABLE):
            for seq, name, session in sql.execute(f"SELECT seq, id, session FROM turns ORDER BY seq {order}"):
                body = sql.execute("SELECT body, prompt, response FROM bodies WHERE seq = ?", (seq,)).fetchone()
                with suppress(OpenClawRLError):
                    for part in body or ():
                        unpack(part)
                    if body:
                        found[str(name)] = str(session)
    return found


def bytes_there(original: Path, home: Path) -> dict[str, str]:
    """Turns of the original, each with its session, of which every byte is in the folder's store, wherever it lies.

    What SQLite cannot reach is read, too: its tree may be broken above a row that is whole. Long values are spread over
    pages, so they are looked for in pieces, those that lie in one piece in the original.
    """
    whole, left = (original / STORE[0]).read_bytes(), (home / STORE[0]).read_bytes()
    found: dict[str, str] = {}
    with reading(original) as sql:
        for name, session, *parts in sql.execute(
            "SELECT id, session, body, prompt, response FROM turns JOIN bodies USING (seq)"
        ):
            pieces = [f"{name}{session}".encode()]
            pieces += [part[at : at + PIECE] for part in parts for at in range(0, len(part), PIECE)]
            if all(piece in left for piece in pieces if piece in whole):
                found[str(name)] = str(session)
    return found


def _manifests(folder: Path) -> Iterator[tuple[str, Manifest]]:
    """The folders of versions that are as their manifest says."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        with suppress(OSError, ValueError):
            manifest = read_manifest(path)
            if str(manifest.version) == path.name and digest_of_folder(path) == manifest.digest:
                yield path.name, manifest


@dataclass(frozen=True, slots=True)
class Loss:
    """What was sound and is no longer there: turns, version folders, and versions that the store had."""

    turns: list[str]
    folders: list[str]
    rows: list[str]

    @property
    def versions(self) -> set[str]:
        """Versions lost either way."""
        return {*self.folders, *self.rows}

    def said(self) -> list[str]:
        """In words; nothing where nothing is lost."""
        found = [f"{len(self.turns)} sound turns lost"] if self.turns else []
        found += [f"folders of sound versions lost: {', '.join(self.folders)}"] if self.folders else []
        return found + ([f"sound versions that the store no longer has: {', '.join(self.rows)}"] if self.rows else [])


def lost(before: State, after: State, *, session: str = "", home: Path | None = None) -> Loss:
    """What is no longer there, without what forgetting a session takes.

    With `home`, a version's folder that was put aside somewhere in it is not lost.
    """
    gone = {name for name, of in before.turns.items() if session and of == session}
    taken = before.saw(gone)
    aside = set() if home is None else _aside(home)
    return Loss(
        [name for name in before.turns if name not in gone and name not in after.turns],
        sorted(
            name
            for name, digest in before.folders.items()
            if name not in taken and after.folders.get(name) != digest and digest not in aside
        ),
        sorted((before.rows & before.folders.keys()) - taken - after.rows),
    )


def _aside(home: Path) -> set[str]:
    """Digests of all sound version folders anywhere in the home folder, whatever they are called."""
    found: set[str] = set()
    for path in home.rglob("manifest.json"):
        with suppress(OSError, ValueError):
            manifest = read_manifest(path.parent)
            if digest_of_folder(path.parent) == manifest.digest:
                found.add(manifest.digest)
    return found


def served_by(home: Path, scope: str = "shared") -> PolicyVersion:
    """What the store says is served."""
    with reading(home) as sql:
        row = sql.execute("SELECT number FROM current WHERE scope = ?", (scope,)).fetchone()
    return PolicyVersion(scope, 0 if row is None else int(row[0]))
