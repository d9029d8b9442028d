"""`openclaw-rl check`: checks everything in a home folder, and repairs what it can if asked."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from openclaw_rl.config import read_config
from openclaw_rl.core.adapter import TRAINER_FACTS, TRAINER_STATE, Adapter, problem_with_state
from openclaw_rl.core.disk import is_read_only
from openclaw_rl.core.inside import move_aside
from openclaw_rl.core.manifest import versions_folder
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.doctor.adopt import CURRENT, AdoptionContext, adopt, another_row, without_manifest
from openclaw_rl.errors import AdapterError, DamageError, OpenClawRLError, StoreError
from openclaw_rl.home.folder import KEY, check_key
from openclaw_rl.home.keys import FILE as KEYS
from openclaw_rl.home.keys import kept_keys
from openclaw_rl.publish.versions import ancestors, verified
from openclaw_rl.remake.forget_finish import finish_erasing
from openclaw_rl.store.connection import NAME, absence, in_plain_words, open_read_only, open_reader, open_writer
from openclaw_rl.store.lock import FolderLock, check_free
from openclaw_rl.store.mend.check import StoreFinding, check_rows
from openclaw_rl.store.mend.salvage import copy_aside, salvage
from openclaw_rl.store.pictures import damaged_pictures, stray_pictures
from openclaw_rl.store.rows import VersionRow, VersionStatus
from openclaw_rl.store.tables import ledger, versions

UNFINISHED = (".tmp", ".new")
LOOK_AGAIN_S = 1.0
MEND_STOPPED = "stop the server; then carry over into a new store what can be read"
MISSING = "its folder is missing or damaged: "
BACK = "its folder is whole again"
MOST_LOOKS = 8


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The findings, and how much was checked."""

    findings: tuple[StoreFinding, ...]
    turns: int = 0
    versions: int = 0

    @property
    def is_sound(self) -> bool:
        """Whether nothing is left to repair."""
        return all(item.is_mended for item in self.findings)


def check_home(home: Path, *, repair: bool = False, now: Callable[[], float] = time.time) -> CheckReport:
    """Checks all of a folder without a running server; with `repair`, repairs what it can.

    Replaced or unusable files are put aside in the folder, never removed. Raises StoreError if another
    process has the folder, or its store is newer than this program.
    """
    lock = None if is_read_only(home) and not repair else FolderLock(home)
    try:
        if lock is None:
            check_free(home)
        found = [*_config(home), *_keys(home, now() if repair else None)]
        damage = _opening(home / NAME, repair=repair)
        if damage is None:
            try:
                return _looked_at(home, found, lock if repair else None, at_s=now())
            except DamageError as problem:  # found during the check: SQLite's own check had not shown it
                damage = problem.problem
        if not repair:
            return CheckReport(
                (*found, StoreFinding(damage, "put it aside and carry over into a new store what can be read"))
            )
        kept = salvage(home, home / NAME, at_s=now())
        found.append(StoreFinding(damage, f"{kept.rows} rows were carried over; the old file is {kept.aside}", True))
        return _looked_at(home, found, lock, at_s=now())
    finally:
        if lock is not None:
            lock.free()


def check_beside(home: Path) -> CheckReport:
    """Checks all of a folder while a server runs on it, without changing or blocking anything.

    The server's unfinished work is not a finding: half-written files are left out, and other findings count only if a
    second check finds them too. Raises StoreError if the store is newer than this program.
    """
    first = _seen(home)
    if not first.findings:
        return first
    time.sleep(LOOK_AGAIN_S)
    second = _seen(home)
    return replace(second, findings=tuple(item for item in second.findings if item in first.findings))


def _seen(home: Path) -> CheckReport:
    """One check of the rows, in one state of the store, and of the folders of known versions."""
    found = [*_config(home), *_keys(home, None)]
    sql = open_reader(home / NAME)
    try:
        found += check_rows(sql, repair=False)
        damaged: set[PolicyVersion] = set()
        for row in _rows(sql):
            found += _version(AdoptionContext(home, sql, repair=False, at_s=0.0), row, damaged)
        found += _current(sql, _rows(sql), damaged, repair=False)
        found += _pictures(AdoptionContext(home, sql, repair=False, at_s=0.0))
        turns, known = ledger.counts(sql), len(_rows(sql))
    except sqlite3.Error as problem:
        raise in_plain_words(problem, home / NAME) from problem
    except DamageError as problem:
        return CheckReport((*found, StoreFinding(problem.problem, MEND_STOPPED)))
    finally:
        sql.close()
    return CheckReport(tuple(found), turns["main"] + turns["side"], known)


def _looked_at(home: Path, found: Sequence[StoreFinding], lock: FolderLock | None, *, at_s: float) -> CheckReport:
    """The findings on rows, versions' folders and other files, after earlier findings; repaired if a lock is given.

    One repair can reveal another problem, so it checks again until nothing more can be repaired.
    """
    repair = lock is not None
    if lock is not None:
        finish_erasing(home, lock=lock)  # or what is being forgotten would be taken in again
    sql = open_writer(home / NAME) if repair else open_read_only(home / NAME)
    seen = list(found)
    try:
        if repair and any(item.mend for item in check_rows(sql, repair=False)):
            copied = copy_aside(home, sql, at_s=at_s)
            seen.append(StoreFinding("rows of the store are about to be mended", f"a copy of it is {copied}", True))
        for _ in range(MOST_LOOKS if repair else 1):
            ground = AdoptionContext(home, sql, repair, at_s)
            new = [*check_rows(sql, repair=repair), *_folders(ground), *_pictures(ground)]
            new = [item for item in new if item not in seen]
            seen += new
            if not any(item.is_mended for item in new):
                break
        turns, known = ledger.counts(sql), len(_rows(sql))
    except sqlite3.Error as problem:
        raise in_plain_words(problem, home / NAME) from problem
    finally:
        sql.close()
    return CheckReport(tuple(seen), turns["main"] + turns["side"], known)


def _folders(ground: AdoptionContext) -> Iterator[StoreFinding]:
    """Version folders against their rows, in one transaction, and the leftovers of crashes."""
    ground.sql.execute("BEGIN IMMEDIATE" if ground.repair else "BEGIN")
    try:
        damaged: set[PolicyVersion] = set()
        for row in _rows(ground.sql):
            yield from _version(ground, row, damaged)
        yield from adopt(ground, _rows(ground.sql))
        yield from _current(ground.sql, _rows(ground.sql), damaged, repair=ground.repair)
        ground.sql.execute("COMMIT")
    finally:
        if ground.sql.in_transaction:
            ground.sql.execute("ROLLBACK")
    yield from _leftovers(ground)


def _config(home: Path) -> Iterator[StoreFinding]:
    try:
        read_config(overrides={"home": str(home)})
    except OpenClawRLError as problem:
        yield StoreFinding(str(problem))


def _keys(home: Path, repair_s: float | None) -> Iterator[StoreFinding]:
    """The files of keys; put aside at this time if one is damaged, since no server starts with it."""
    looks: tuple[tuple[str, str, Callable[[Path], object]], ...] = (
        (KEY, "a new key is made at the next start, and clients need it", check_key),
        (KEYS, "the keys in it no longer work; make new ones with `openclaw-rl keys add`", kept_keys),
    )
    for name, then, look in looks:
        try:
            look(home)
        except StoreError as problem:
            is_mended = repair_s is not None and os.access(home / name, os.R_OK)  # otherwise it may be sound
            if is_mended and repair_s is not None:
                move_aside(home, home / name, at_s=repair_s)
            yield StoreFinding(problem.problem, f"put it aside: {then}" if is_mended else problem.fix, is_mended)


def _opening(path: Path, *, repair: bool) -> str | None:
    """What is wrong with the file as a whole. A store of another program, or of a newer version, is never repaired.

    Without `repair` nothing is created or migrated.
    """
    if absence(path) and (path.exists() or not repair):
        return absence(path)
    try:
        (open_writer if repair else open_read_only)(path).close()
    except StoreError as problem:
        if "is damaged" not in problem.problem:
            raise
        return problem.problem
    return None


def _rows(sql: sqlite3.Connection) -> list[VersionRow]:
    try:
        return versions.everything(sql)
    except StoreError:
        return []  # reported by `check_rows`; without it folders cannot be checked


def _version(ground: AdoptionContext, row: VersionRow, damaged: set[PolicyVersion]) -> Iterator[StoreFinding]:
    """Checks that a version's folder exists and is as it was written."""
    if row.folder is None:
        return
    if row.pruned_s is not None:
        found = without_manifest(ground, row)
        if found is not None:
            yield found
        return
    problem, is_missed = _problem(row), row.why.startswith(MISSING)
    if row.status is VersionStatus.REFUSED:
        if is_missed and problem is None:
            if ground.repair:
                versions.settle(ground.sql, row.version, VersionStatus.LIVE, BACK, {})
            what = f"version {row.version} is whole again"
            yield StoreFinding(what, f"it can be served: `openclaw-rl rollback {row.version}`", ground.repair)
        return
    if problem is None:
        yield from _state(ground, row)
        return
    found = without_manifest(ground, row) or another_row(ground, row)
    if found is not None:
        yield found
        return
    damaged.add(row.version)
    if ground.repair:
        versions.settle(ground.sql, row.version, VersionStatus.REFUSED, MISSING + problem, {})
    yield StoreFinding(problem, "mark it refused, so that nothing serves it or continues from it", ground.repair)


def _state(ground: AdoptionContext, row: VersionRow) -> Iterator[StoreFinding]:
    """The trainer's state next to sound weights: training can continue without it, so a damaged one is put aside."""
    assert row.folder is not None
    problem = problem_with_state(row.folder)
    if problem is None:
        return
    for name in (TRAINER_STATE, TRAINER_FACTS) if ground.repair else ():
        if (row.folder / name).exists():
            move_aside(ground.home, row.folder / name, at_s=ground.at_s, name=f"{row.version}.{name}")
    yield StoreFinding(
        f"the trainer's state of version {row.version} is damaged: {problem}",
        "put it aside; training continues from the version's weights, with fresh moments of the optimiser",
        ground.repair,
    )


def _problem(row: VersionRow) -> str | None:
    assert row.folder is not None
    try:
        verified(Adapter(row.folder, row.digest, row.version))
    except AdapterError as problem:
        return problem.problem
    return None


def _current(
    sql: sqlite3.Connection, rows: Sequence[VersionRow], damaged: set[PolicyVersion], *, repair: bool
) -> Iterator[StoreFinding]:
    """The served version must have passed and be complete; else the nearest such ancestor is served.

    If the record of what a scope serves is lost, it is the newest version that passed.
    """
    passed = [row for row in rows if row.status is VersionStatus.LIVE and row.pruned_s is None]
    good = {row.version for row in passed if row.version not in damaged}
    held = {PolicyVersion(str(scope), int(number)) for scope, number in sql.execute(CURRENT).fetchall()}
    for version in held:
        if version.is_base or version in good:
            continue
        instead = next((row.version for row in ancestors(rows, version) if row.version in good), None)
        instead = PolicyVersion(version.scope, 0) if instead is None else instead
        if repair:
            versions.set_current(sql, instead, f"version {version} is damaged")
        yield StoreFinding(f"version {version} is to be served but cannot be", f"serve {instead}", repair)
    newest = {version.scope: version for version in sorted(good) if not version.is_base}
    for scope in sorted(newest.keys() - {version.scope for version in held}):
        if repair:
            versions.set_current(sql, newest[scope], "what was served before is not known any more")
        yield StoreFinding(f"nothing says which version of {scope} is served", f"serve {newest[scope]}", repair)


def _pictures(ground: AdoptionContext) -> Iterator[StoreFinding]:
    """Screenshots that belong to no step in the store, or differ from what was written."""
    strays = [(path, "belongs to no step in the store") for path in stray_pictures(ground.home, ground.sql)]
    damaged = [(path, f"is damaged: {problem}") for path, problem in damaged_pictures(ground.home)]
    for path, problem in [*strays, *(one for one in damaged if one[0] not in dict(strays))]:
        if ground.repair:
            move_aside(ground.home, path, at_s=ground.at_s, name=f"{path.parent.name}.{path.name}")
        yield StoreFinding(f"the picture {path} {problem}", "put it aside", ground.repair)


def _leftovers(ground: AdoptionContext) -> Iterator[StoreFinding]:
    """Unfinished files that a crash left."""
    folder = versions_folder(ground.home)
    paths = [*(folder.iterdir() if folder.is_dir() else []), *ground.home.iterdir()]
    for path in sorted(path for path in paths if path.name.endswith(UNFINISHED)):
        if ground.repair:
            move_aside(ground.home, path, at_s=ground.at_s)
        yield StoreFinding(f"{path} was never finished", "put it aside", ground.repair)
