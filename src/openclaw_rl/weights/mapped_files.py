"""Files that several processes map read-only: made once, and removed with the last process that maps them.

Each process holds a shared lock on what it maps, which the system releases however the process ends. A file without a
lock is unused: any process may remove it, even if half-written.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def cache_folder() -> Path:
    """The folder of the files."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "openclaw-rl" / "weights"


def mapped(file: Path) -> mmap.mmap | None:
    """The file's bytes, locked while they are mapped; None without a file.

    A page that this process writes becomes private: no process can change what another reads.
    """
    try:
        handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        if os.fstat(handle).st_nlink == 0:  # removed between the two calls
            return None
        return mmap.mmap(handle, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    finally:
        os.close(handle)  # the map has its own handle, and with it the lock


def make(file: Path, write: Callable[[BinaryIO], None]) -> mmap.mmap | None:
    """The bytes of a file that `write` fills; None if another process was first.

    The file gets its name when it is complete. Raises OSError, with nothing left behind.
    """
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=file.parent, suffix=".new")
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        with os.fdopen(handle, "wb", closefd=False) as target:
            write(target)
        try:
            os.link(name, file)
        except FileExistsError:
            return None
        return mapped(file)  # by its name, while the lock on the first handle keeps it
    finally:
        Path(name).unlink(missing_ok=True)
        os.close(handle)


def remove_unused(folder: Path) -> None:
    """Removes the files that no process maps; files that cannot be removed stay for the next time."""
    try:
        paths = list(folder.iterdir())
    except OSError:  # nothing was ever shared
        return
    for path in paths:
        with contextlib.suppress(OSError):  # in use, or removed by another process just now
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(handle)
