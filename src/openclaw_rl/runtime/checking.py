"""`openclaw-rl check`: whether everything in a home folder is as it should be, and what can be mended."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from openclaw_rl.config import read_config
from openclaw_rl.core.adapter import Adapter
from openclaw_rl.core.manifest import version_folder, versions_folder
from openclaw_rl.core.version import PolicyVersion, parse_version
from openclaw_rl.errors import AdapterError, DamageError, OpenClawRLError, StoreError
from openclaw_rl.publish.versions import ancestors, verified
from openclaw_rl.store import ledger, salvage, versions
from openclaw_rl.store.check import Finding, check_rows
from openclaw_rl.store.connection import NAME, in_plain_words, open_writer
from openclaw_rl.store.lock import FolderLock
from openclaw_rl.store.rows import VersionRow, VersionStatus

UNFINISHED = (".tmp", ".new")
MISSING = "its folder is missing or damaged: "


@dataclass(frozen=True, slots=True)
class Report:
    """What was found, and how much was looked at."""

    findings: tuple[Finding, ...]
    turns: int = 0
    versions: int = 0

    @property
    def is_sound(self) -> bool:
        """Whether nothing is left to be mended."""
        return all(item.is_mended for item in self.findings)


def check_home(home: Path, *, repair: bool = False, now: Callable[[], float] = time.time) -> Report:
    """Looks at all of a folder that no server runs on; with `repair`, mends what can be.

    Raises StoreError where another process has the folder, or its store is newer than this program.
    """
    lock = FolderLock(home)
    try:
        found = list(_config(home))
        damage = _opening(home / NAME)
        if damage is None:
            try:
                return _looked_at(home, found, repair=repair)
            except DamageError as problem:  # met on the way: SQLite's own look had not shown it
                damage = problem.problem
        if not repair:
            return Report((*found, Finding(damage, "put it aside and carry over into a new store what can be read")))
        kept = salvage.salvage(home / NAME, at_s=now())
        found.append(Finding(damage, f"{kept.rows} rows were carried over; the old file is {kept.aside}", True))
        return _looked_at(home, found, repair=True)
    finally:
        lock.free()


def _looked_at(home: Path, found: Sequence[Finding], *, repair: bool) -> Report:
    """The rows, the versions' folders and what lies about, behind what was found before."""
    sql = open_writer(home / NAME)
    try:
        rows = check_rows(sql, repair=repair)
        folders = list(_versions(home, sql, repair=repair))
        turns, known = ledger.counts(sql), len(_rows(sql))
    except sqlite3.Error as problem:
        raise in_plain_words(problem, home / NAME) from problem
    finally:
        sql.close()
    return Report((*found, *rows, *folders, *_leftovers(home, repair=repair)), turns["main"] + turns["side"], known)


def _config(home: Path) -> Iterator[Finding]:
    try:
        read_config(overrides={"home": str(home)})
    except OpenClawRLError as problem:
        yield Finding(str(problem))


def _opening(path: Path) -> str | None:
    """What is wrong with the file as a whole. A store of another program, or of a newer one, is nobody's to mend."""
    try:
        open_writer(path).close()
    except StoreError as problem:
        if "is damaged" not in problem.problem:
            raise
        return problem.problem
    return None


def _rows(sql: sqlite3.Connection) -> list[VersionRow]:
    try:
        return versions.everything(sql)
    except StoreError:
        return []  # told by `check_rows`; nothing can be said of folders without it


def _versions(home: Path, sql: sqlite3.Connection, *, repair: bool) -> Iterator[Finding]:
    """Folders against their rows: each there and as it was written, and what is served among them."""
    damaged: set[PolicyVersion] = set()
    rows = _rows(sql)
    for row in rows:
        if row.folder is None or row.status is VersionStatus.REFUSED:
            continue
        problem = _problem(row)
        if problem is None:
            continue
        moved = replace(row, folder=version_folder(home, row.version))
        if _problem(moved) is None:
            if repair:
                values = (str(moved.folder), row.version.scope, row.version.number)
                sql.execute("UPDATE versions SET folder = ? WHERE scope = ? AND number = ?", values)
            yield Finding(f"version {row.version} lies in {moved.folder}, not {row.folder}", "note that", repair)
            continue
        damaged.add(row.version)
        if repair:
            versions.settle(sql, row.version, VersionStatus.REFUSED, MISSING + problem, {})
        yield Finding(problem, "mark it refused, so that nothing serves it or goes on from it", repair)
    yield from _current(sql, rows, damaged, repair=repair)


def _problem(row: VersionRow) -> str | None:
    assert row.folder is not None
    try:
        verified(Adapter(row.folder, row.digest, row.version))
    except AdapterError as problem:
        return problem.problem
    return None


def _current(
    sql: sqlite3.Connection, rows: Sequence[VersionRow], damaged: set[PolicyVersion], *, repair: bool
) -> Iterator[Finding]:
    """What is served is a version that passed and is whole; else the nearest ancestor that is."""
    good = {row.version for row in rows if row.status is VersionStatus.LIVE and row.version not in damaged}
    for scope, number in sql.execute("SELECT scope, number FROM current").fetchall():
        version = PolicyVersion(str(scope), int(number))
        if version.is_base or version in good:
            continue
        instead = next((row.version for row in ancestors(rows, version) if row.version in good), None)
        instead = PolicyVersion(version.scope, 0) if instead is None else instead
        if repair:
            versions.set_current(sql, instead, f"version {version} is damaged")
        yield Finding(f"version {version} is to be served but cannot be", f"serve {instead}", repair)


def _leftovers(home: Path, *, repair: bool) -> Iterator[Finding]:
    """What a crash left half-written, and version folders that no step was committed for."""
    sql = open_writer(home / NAME)
    try:
        known = {f"{scope}.{number}" for scope, number in sql.execute("SELECT scope, number FROM versions")}
    finally:
        sql.close()
    folder = versions_folder(home)
    paths = [*(folder.iterdir() if folder.is_dir() else []), *home.iterdir()]
    for path in sorted(paths):
        is_orphan = path.parent == folder and path.is_dir() and _is_version(path.name) and path.name not in known
        if is_orphan or path.name.endswith(UNFINISHED):
            if repair:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            yield Finding(f"{path} was never finished", "remove it", repair)


def _is_version(name: str) -> bool:
    try:
        parse_version(name)
    except ValueError:
        return False
    return "." in name
