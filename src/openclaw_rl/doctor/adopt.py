"""Takes version folders in again from their manifests, if the store does not know them or knows them wrongly.

A folder with a sound manifest and digest is a version, even if its row was lost: the row is rebuilt, and what
its step had consumed counts as trained, so that nothing is learned twice.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from openclaw_rl.core.adapter import Adapter, digest_of_folder, files_of
from openclaw_rl.core.inside import move_aside
from openclaw_rl.core.manifest import FILE_NAME, Manifest, read_manifest, version_folder, write_manifest
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.errors import AdapterError
from openclaw_rl.publish.versions import verified
from openclaw_rl.store import codec
from openclaw_rl.store.mend.check import StoreFinding
from openclaw_rl.store.rows import VersionRow, VersionStatus
from openclaw_rl.store.tables import versions
from openclaw_rl.train import folders

FOUND = "its row was lost and made again from its manifest"
UNKNOWN = "its row and its folder are lost"
CURRENT = "SELECT scope, number FROM current"
WAITING = "step IS NULL AND reason IS NULL"


@dataclass(frozen=True, slots=True)
class AdoptionContext:
    """The folder, its store, and the time of this check."""

    home: Path
    sql: sqlite3.Connection
    repair: bool
    at_s: float


def adopt(ground: AdoptionContext, rows: Sequence[VersionRow]) -> Iterator[StoreFinding]:
    """Takes in the folders of versions that the store does not know, and puts aside those that are not whole."""
    known = {row.version: row for row in rows}
    sound: dict[PolicyVersion, Manifest] = {}
    for version, manifest in sorted(folders.orphans(ground.home, known.keys()).items(), key=_shared_first):
        problem = _problem(ground.home, version, manifest) or _taken(manifest, rows)
        if manifest is not None and not problem:
            sound[version] = manifest
            continue
        path = version_folder(ground.home, version)
        if ground.repair:
            move_aside(ground.home, path, at_s=ground.at_s)
        yield StoreFinding(f"{path} belongs to no version of the store: {problem}", "put it aside", ground.repair)
    statuses = _statuses(ground.sql, sound, known)
    for version, manifest in sound.items():
        status = statuses[version]
        if ground.repair:
            _enter(ground, manifest, status)
        what = f"the store does not know version {version}, whose folder is sound"
        how = "it meets the gate again" if status is VersionStatus.CANDIDATE else "it had passed the gate"
        yield StoreFinding(what, f"take it in again from its manifest; {how}", ground.repair)
    yield from _lost(ground, {*known, *sound}, (*rows, *map(_row_of, sound.values())))


def without_manifest(ground: AdoptionContext, row: VersionRow) -> StoreFinding | None:
    """The finding on a version whose manifest is lost, if its weights match the store, or are pruned; else None."""
    folder = version_folder(ground.home, row.version)
    try:
        read_manifest(folder)
    except (OSError, ValueError) as problem:
        words = f"the manifest of version {row.version} cannot be read: {problem}"
    else:
        return None
    try:
        if row.pruned_s is None and digest_of_folder(folder) != row.digest:
            return None
    except OSError:
        return None
    if ground.repair:
        if (folder / FILE_NAME).exists():
            move_aside(ground.home, folder / FILE_NAME, at_s=ground.at_s)
        folder.mkdir(exist_ok=True)
        step = ground.sql.execute("SELECT id FROM steps WHERE scope = ? AND number = ?", _named(row.version)).fetchone()
        write_manifest(folder, _manifest_of(row, "" if step is None else str(step[0])))
    return StoreFinding(
        words, "write it again from the store; with which settings it was trained is lost", ground.repair
    )


def another_row(ground: AdoptionContext, row: VersionRow) -> StoreFinding | None:
    """The finding on a row whose digest differs from the folder and the manifest of its own step; else None."""
    folder = version_folder(ground.home, row.version)
    step = ground.sql.execute("SELECT id FROM steps WHERE scope = ? AND number = ?", _named(row.version)).fetchone()
    try:
        manifest = read_manifest(folder)
        is_sound = manifest.version == row.version and digest_of_folder(folder) == manifest.digest
    except (OSError, ValueError):
        return None
    if not is_sound or step is None or str(step[0]) != manifest.step or manifest.turns != row.turns:
        return None
    if ground.repair:
        ground.sql.execute(
            "UPDATE versions SET digest = ? WHERE scope = ? AND number = ?", (manifest.digest, *_named(row.version))
        )
    what = f"the row of version {row.version} holds another digest than its folder and its manifest"
    return StoreFinding(what, "take that of the manifest, which its step wrote", ground.repair)


def _problem(home: Path, version: PolicyVersion, manifest: Manifest | None) -> str:
    if manifest is None:
        return "its manifest is missing or damaged"
    folder = version_folder(home, version)
    if _is_pruned(folder) and manifest.version == version:
        return ""
    try:
        verified(Adapter(folder, manifest.digest, version))
    except AdapterError as problem:
        return problem.problem
    return ""


def _taken(manifest: Manifest | None, rows: Sequence[VersionRow]) -> str:
    """Why a sound folder may not be taken in: another version of its scope learned from the same samples."""
    if manifest is None:
        return ""
    consumed = {*manifest.turns}
    others = (row for row in rows if row.version.scope == manifest.version.scope and not row.has_given_back)
    other = next((row.version for row in others if not consumed.isdisjoint(row.turns)), None)
    return "" if other is None else f"what it was trained on, version {other} was trained on too"


def _statuses(
    sql: sqlite3.Connection, found: Mapping[PolicyVersion, Manifest], known: Mapping[PolicyVersion, VersionRow]
) -> dict[PolicyVersion, VersionStatus]:
    """The status of each version. One that others were made from, or that should be served, had passed the gate.

    Of the others, only those made from the version to be served can go through the gate again.
    """
    stood_on = {manifest.parent for manifest in found.values()} | {row.parent for row in known.values()}
    stood_on |= {manifest.upon for manifest in found.values()} | {row.upon for row in known.values()}
    current = {PolicyVersion(str(scope), int(number)) for scope, number in sql.execute(CURRENT)}
    passed = {version for version in found if version in stood_on or version in current}
    heads = {version.scope: version for version in sorted(passed)} | {version.scope: version for version in current}
    return {
        version: VersionStatus.CANDIDATE
        if version not in passed and manifest.parent == heads.get(version.scope, PolicyVersion(version.scope, 0))
        else VersionStatus.LIVE
        for version, manifest in found.items()
    }


def _enter(ground: AdoptionContext, manifest: Manifest, status: VersionStatus) -> None:
    """Adds its row, its step, and the step's changes to its turns."""
    sql, version = ground.sql, manifest.version
    folder = version_folder(ground.home, version)
    pruned_s = ground.at_s if _is_pruned(folder) else None
    row = replace(_row_of(manifest), folder=folder, status=status, pruned_s=pruned_s)
    versions.insert(sql, row)
    sql.execute(
        "INSERT INTO steps VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET scope = excluded.scope, "
        "number = excluded.number",
        (manifest.step, manifest.made_s, manifest.made_s, *_named(version), codec.metrics_text(row.metrics)),
    )
    for turn in manifest.turns:
        if sql.execute("SELECT 1 FROM turns WHERE id = ? AND kind = 'main'", (codec.plain(turn),)).fetchone() is None:
            continue
        lesson = (codec.plain(turn), codec.plain(version.scope), manifest.step)
        sql.execute("INSERT OR IGNORE INTO lessons (turn, scope, step) VALUES (?, ?, ?)", lesson)
        sql.execute(f"UPDATE lessons SET step = ?3 WHERE turn = ?1 AND scope = ?2 AND {WAITING}", lesson)
        sql.execute(
            "UPDATE turns SET state = 'trained', step = coalesce(step, ?) WHERE id = ? AND state NOT IN "
            f"('trained', 'dropped') AND NOT EXISTS (SELECT 1 FROM lessons WHERE turn = turns.id AND {WAITING})",
            (manifest.step, codec.plain(turn)),
        )


def _lost(
    ground: AdoptionContext, known: Collection[PolicyVersion], rows: Sequence[VersionRow]
) -> Iterator[StoreFinding]:
    """Versions of which only the name is left, in a step or in a later version: their numbers stay in use."""
    sql = ground.sql
    named = {
        PolicyVersion(str(scope), int(number)): str(step)
        for step, scope, number in sql.execute("SELECT id, scope, number FROM steps WHERE scope IS NOT NULL")
    }
    for row in rows:
        for version in (row.parent, row.upon):
            if version is not None:
                named.setdefault(version, "")
    for version in sorted(version for version in named if not version.is_base and version not in known):
        if ground.repair:
            learned = sql.execute("SELECT turn FROM lessons WHERE step = ? ORDER BY turn", (named[version],)).fetchall()
            turns = tuple(str(turn) for (turn,) in learned) if named[version] else ()
            base = PolicyVersion(version.scope, 0)
            lost = VersionRow(version, base, None, "", VersionStatus.REFUSED, UNKNOWN, ground.at_s, turns)
            versions.insert(sql, lost)
        yield StoreFinding(
            f"of version {version} only the name is left", "keep the name; it cannot be served", ground.repair
        )


def _row_of(manifest: Manifest) -> VersionRow:
    return VersionRow(
        version=manifest.version,
        parent=manifest.parent,
        folder=None,
        digest=manifest.digest,
        status=VersionStatus.CANDIDATE,
        why=FOUND,
        made_s=manifest.made_s,
        turns=manifest.turns,
        metrics=dict(manifest.metrics),
        rehearsed=manifest.rehearsed,
        upon=manifest.upon,
    )


def _manifest_of(row: VersionRow, step: str) -> Manifest:
    return Manifest(
        version=row.version,
        parent=row.parent or PolicyVersion(row.version.scope, 0),
        step=step,
        turns=row.turns,
        samples=len(row.read),
        digest=row.digest,
        made_s=row.made_s,
        metrics=row.metrics,
        rehearsed=row.rehearsed,
        upon=row.upon,
    )


def _is_pruned(folder: Path) -> bool:
    return not (folder / files_of(folder)[1]).exists()


def _named(version: PolicyVersion) -> tuple[str, int]:
    return codec.plain(version.scope), version.number


def _shared_first(item: tuple[PolicyVersion, Manifest | None]) -> tuple[bool, PolicyVersion]:
    return item[0].scope != SHARED, item[0]
