"""Keeps writes and removals inside the home folder, and puts files aside that cannot be repaired."""

from __future__ import annotations

import shutil
from pathlib import Path

from openclaw_rl.errors import StoreError

ASIDE = "aside"  # the folder of files that a repair replaced or could not use
HANDED_BACK = "handed-back"  # the folder of adapters that an external trainer sends, until their step is over
OWN = (
    "store.db",
    "store.db-wal",
    "versions",
    "pictures",
    "certificates",
    "lock",
    "api_key",
    "keys.json",
    ASIDE,
    HANDED_BACK,
)
OLD_ASIDE = "store.db.damaged-*"  # the earlier names of stores that were put aside


def is_inside(home: Path, path: Path) -> bool:
    """Whether the path is in the home folder, with links resolved."""
    return path.resolve().is_relative_to(home.resolve())


def check_links(home: Path) -> None:
    """Raises StoreError if a file or folder of the home folder is a link to the outside.

    A copy of such a folder shares the link's target with the original, and would write there.
    """
    for path in sorted(home.iterdir()) if home.is_dir() else []:
        if path.is_symlink() and path.name in OWN and not is_inside(home, path):
            raise StoreError(
                f"{path} is a link to {path.resolve()}, outside of {home}",
                fix="move the whole home folder there (it may be a link itself), or mount the other disk in its place",
            )


def remove(home: Path, path: Path) -> None:
    """Removes a file or a folder of the home folder; it may already be gone. Raises StoreError.

    A copied folder whose `versions` is a link has another installation's versions: these are not removed.
    """
    if not is_inside(home, path):
        raise StoreError(
            f"{path} points outside {home}, to {path.resolve()}; nothing there was removed",
            fix="replace the link by the files it points to, so that the folder holds its own files",
        )
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as problem:
        raise StoreError(
            f"{path} cannot be removed: {problem.strerror}",
            fix="make the home folder and everything in it writable, then run the command again",
        ) from problem


def place_aside(home: Path, name: str, *, at_s: float) -> Path:
    """A free place in `aside/` for something of this name; the folder is created. Raises StoreError."""
    place = home / ASIDE / f"{name}.{int(at_s)}"
    number = 1
    while place.exists():
        number += 1
        place = place.with_name(f"{name}.{int(at_s)}-{number}")
    try:
        place.parent.mkdir(mode=0o700, exist_ok=True)
    except OSError as problem:
        raise StoreError(
            f"{place.parent} cannot be made: {problem.strerror}",
            fix="make the home folder writable, and free some space",
        ) from problem
    return place


def move_aside(home: Path, path: Path, *, at_s: float, name: str | None = None) -> Path:
    """Moves a file or folder of the home folder into `aside/`, and returns its new path. Raises StoreError.

    `name` is its new name; by default the old one.
    """
    if not is_inside(home, path):
        raise StoreError(
            f"{path} points outside {home}, to {path.resolve()}; nothing there was moved",
            fix="replace the link by the files it points to, so that the folder holds its own files",
        )
    place = place_aside(home, name or path.name, at_s=at_s)
    try:
        path.rename(place)
    except OSError as problem:
        raise StoreError(
            f"{path} cannot be moved to the folder aside: {problem.strerror}",
            fix="make the home folder writable, and free some space",
        ) from problem
    return place


def put_aside(home: Path) -> list[Path]:
    """What repairs have put aside in this folder."""
    held = home / ASIDE
    return [*home.glob(OLD_ASIDE), *([held] if held.exists() else [])]
