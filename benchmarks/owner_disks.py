"""The ground of each case, in a mount namespace of its own: nothing it mounts or writes is seen by others or stays."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from benchmarks.owner_ground import laid
from benchmarks.owner_run import Place

CLONE_NEWNS = 0x00020000
DISK_MB = 96  # of a disk before it is filled
FILLER = "filler.bin"


class NoMountError(Exception):
    """This machine does not let us mount: what needs it is left out."""


def apart(root: Path) -> None:
    """From now on this process mounts for itself alone; `root` is an empty disk in memory. Raises NoMountError."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS):
        raise NoMountError(os.strerror(ctypes.get_errno()))
    mount("--make-rprivate", "/")
    root.mkdir(parents=True, exist_ok=True)
    mount("-t", "tmpfs", "-o", "mode=700,size=2G", "owner", str(root))


def mount(*words: str) -> None:
    """Raises NoMountError."""
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoMountError(done.stderr.strip())


def place_at(kept: Path, root: Path, facts: dict[str, str], situation: str) -> Place:
    """The ground as it was made, at its place; the folder in hand is the original itself."""
    laid(kept, root)
    out = root / "out"
    out.mkdir(exist_ok=True)
    return Place(root, kept, facts, root / "home", out, situation)


def copied(place: Place, name: str = "copy") -> Path:
    """A fresh copy of the original, as `cp -a` makes it; what was written for an earlier one is gone."""
    home = place.root / name
    for folder in (home, place.out):
        shutil.rmtree(folder, ignore_errors=True)
    place.out.mkdir()
    shutil.copytree(place.original, home, symlinks=True, ignore_dangling_symlinks=True)
    return home


def disk(place: Place, *, size_mb: int = DISK_MB) -> Path:
    """An empty small disk."""
    folder = place.root / "disk"
    folder.mkdir(exist_ok=True)
    if os.path.ismount(folder):
        subprocess.run(["umount", "-l", str(folder)], check=True)
    mount("-t", "tmpfs", "-o", f"mode=700,size={size_mb}M", "owner", str(folder))
    return folder


def on_disk(place: Place) -> Path:
    """A fresh copy of the original on a small disk; what is written goes there, too."""
    folder = disk(place)
    shutil.copytree(place.original, folder / "home")
    place.home, place.out = folder / "home", folder / "out"
    place.out.mkdir()
    return folder


def fill(folder: Path, *, leave_bytes: int = 0) -> None:
    """Fills the disk but for so many bytes."""
    with (folder / FILLER).open("ab", buffering=0) as stream:
        with suppress(OSError):
            while stream.write(bytes(1 << 20)):
                pass
        with suppress(OSError):
            while stream.write(bytes(4096)):
                pass
        if leave_bytes:
            stream.truncate(max(0, stream.tell() - leave_bytes))


def free(folder: Path) -> None:
    """Makes room again."""
    (folder / FILLER).unlink(missing_ok=True)


def read_only(place: Place) -> Path:
    """A copy of the original that nobody can write, root included; what is written goes elsewhere."""
    folder = disk(place)
    shutil.copytree(place.original, folder / "home")
    mount("-o", "remount,ro", str(folder))
    place.home = folder / "home"
    return folder
