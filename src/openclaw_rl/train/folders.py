"""A version's way onto the disk: written under another name, synced, renamed; what a crash left is removed."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Collection
from pathlib import Path

from openclaw_rl.core.adapter import Adapter, digest_of_folder
from openclaw_rl.core.manifest import Manifest, version_folder, versions_folder, write_manifest
from openclaw_rl.core.version import PolicyVersion, parse_version
from openclaw_rl.errors import AdapterError

log = logging.getLogger(__name__)
UNFINISHED = ".tmp"


def fresh_folder(home: Path, version: PolicyVersion) -> Path:
    """An empty folder to write a version into; what lay there or at its final place is removed."""
    final = version_folder(home, version)
    unfinished = final.with_name(final.name + UNFINISHED)
    for old in (final, unfinished):
        if old.exists():
            shutil.rmtree(old)
    unfinished.mkdir(parents=True)
    return unfinished


def check_digest(adapter: Adapter) -> None:
    """Raises AdapterError where the folder is not what the adapter says."""
    found = digest_of_folder(adapter.folder)
    if found != adapter.digest:
        raise AdapterError(
            f"{adapter.folder} has digest {found[:12]}, not {adapter.digest[:12]} as exported",
            fix="see whether the disk is full or failing; the step is taken again",
        )


def finish(unfinished: Path, manifest: Manifest) -> Path:
    """Writes the manifest, syncs everything to disk and gives the folder its name. Raises OSError."""
    write_manifest(unfinished, manifest)
    for path in [*unfinished.rglob("*"), unfinished]:
        _sync(path)
    final = unfinished.with_name(unfinished.name.removesuffix(UNFINISHED))
    unfinished.rename(final)
    _sync(final.parent)
    return final


def remove(home: Path, version: PolicyVersion) -> None:
    """Removes a version's folder, finished or not."""
    final = version_folder(home, version)
    for folder in (final, final.with_name(final.name + UNFINISHED)):
        shutil.rmtree(folder, ignore_errors=True)


def remove_orphans(home: Path, known: Collection[PolicyVersion]) -> list[str]:
    """Removes version folders that no step was committed for, and returns their names.

    Those are what a crash between the renaming and the commit leaves: their samples are still waiting. Folders that
    are not named like a version are left alone.
    """
    removed: list[str] = []
    folder = versions_folder(home)
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        version = _version_of(path.name.removesuffix(UNFINISHED))
        if path.is_dir() and version is not None and (path.name.endswith(UNFINISHED) or version not in known):
            shutil.rmtree(path)
            removed.append(path.name)
            log.warning("removed the folder of a version that was never committed: %s", path.name)
    return removed


def _version_of(name: str) -> PolicyVersion | None:
    try:
        return parse_version(name) if "." in name else None
    except ValueError:
        return None


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
