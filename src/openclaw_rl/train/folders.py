"""Writes versions to disk: under another name, synced, renamed; unfinished ones are removed."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Collection
from pathlib import Path

from openclaw_rl.core.adapter import Adapter, digest_of_folder
from openclaw_rl.core.disk import sync
from openclaw_rl.core.manifest import Manifest, read_manifest, version_folder, versions_folder, write_manifest
from openclaw_rl.core.version import PolicyVersion, parse_version
from openclaw_rl.errors import AdapterError

log = logging.getLogger(__name__)
UNFINISHED = ".tmp"


def next_number(home: Path, scope: str, last: int) -> int:
    """The number of the next version of a scope, `last` being the highest the store knows.

    A folder that the store does not know of keeps its number: it may be all that is left of a version.
    """
    numbers = [found.number for path in _finished(home) if (found := version_of(path.name)) and found.scope == scope]
    return max(last, *numbers, 0) + 1


def fresh_folder(home: Path, version: PolicyVersion) -> Path:
    """An empty folder to write a version into; what a crash left there is removed. Raises OSError.

    Raises FileExistsError if the version has a finished folder already: what was learned is never written over.
    """
    final = version_folder(home, version)
    unfinished = final.with_name(final.name + UNFINISHED)
    if final.exists():
        raise FileExistsError(f"{final} is there already")
    if unfinished.exists():
        shutil.rmtree(unfinished)
    unfinished.mkdir(parents=True)
    return unfinished


def check_digest(adapter: Adapter) -> None:
    """Raises AdapterError if the folder is not what the adapter says."""
    found = digest_of_folder(adapter.folder)
    if found != adapter.digest:
        raise AdapterError(
            f"{adapter.folder} has digest {found[:12]}, not {adapter.digest[:12]} as exported",
            fix="check whether the disk is full or failing; the step is repeated",
        )


def finish(unfinished: Path, manifest: Manifest) -> Path:
    """Writes the manifest, syncs everything to disk and gives the folder its name. Raises OSError."""
    write_manifest(unfinished, manifest)
    for path in [*unfinished.rglob("*"), unfinished]:
        sync(path)
    final = unfinished.with_name(unfinished.name.removesuffix(UNFINISHED))
    unfinished.rename(final)
    sync(final.parent)
    return final


def remove(home: Path, version: PolicyVersion) -> None:
    """Removes a version's folder, finished or not."""
    final = version_folder(home, version)
    for folder in (final, final.with_name(final.name + UNFINISHED)):
        shutil.rmtree(folder, ignore_errors=True)


def remove_unfinished(home: Path) -> list[str]:
    """Removes the version folders that were still being written when their process ended, and returns their names."""
    removed: list[str] = []
    for path in _folders(home):
        if path.name.endswith(UNFINISHED) and version_of(path.name.removesuffix(UNFINISHED)) is not None:
            shutil.rmtree(path)
            removed.append(path.name)
            log.warning("removed the folder of a version that was never finished: %s", path.name)
    return removed


def orphans(home: Path, known: Collection[PolicyVersion]) -> dict[PolicyVersion, Manifest | None]:
    """The finished version folders that the store does not know of, with their manifests; None for one without.

    A crash between the renaming and the commit leaves one; so does a store that was damaged, or restored from a backup.
    """
    found: dict[PolicyVersion, Manifest | None] = {}
    for path in _finished(home):
        version = version_of(path.name)
        if version is None or version in known:
            continue
        try:
            found[version] = read_manifest(path)
        except (OSError, ValueError) as problem:
            log.warning("%s has no manifest that can be read: %s", path, problem)
            found[version] = None
    return found


def version_of(name: str) -> PolicyVersion | None:
    """The version with a folder of this name; None for any other name."""
    try:
        return parse_version(name) if "." in name else None
    except ValueError:
        return None


def _finished(home: Path) -> list[Path]:
    return [path for path in _folders(home) if version_of(path.name) is not None]


def _folders(home: Path) -> list[Path]:
    folder = versions_folder(home)
    return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
