"""Writes files atomically and durably, and explains failures of the disk."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from openclaw_rl.errors import DiskError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
READ_ONLY = frozenset({errno.EROFS})
NOT_OURS = frozenset({errno.EACCES, errno.EPERM})
BROKEN = frozenset({errno.EIO})
FRESH = ".new"  # suffix of a file that is not complete yet
LEAST_BYTES = 128 << 10  # what a store needs to open
FREE_SPACE = "free some space on it and try again; what was acknowledged before is stored safely"


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file atomically, readable only by the owner; its folder is created. Raises OSError."""
    fresh = path.with_name(path.name + FRESH)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        fresh.replace(path)
    except OSError:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Syncs a file, or a folder's list of names, to the disk. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def unwritable(place: Path, problem: OSError) -> DiskError:
    """Why the file or folder cannot be written, and what to do about it."""
    said = problem.strerror or str(problem)
    if problem.errno in FULL:
        return DiskError(f"{place} cannot be written: the disk is full ({said})", fix=FREE_SPACE)
    if problem.errno in READ_ONLY:
        return DiskError(
            f"{place} cannot be written: it is on a disk that is mounted read-only",
            fix="mount it writable, or copy the folder to another disk and give that copy with --home",
        )
    if problem.errno in BROKEN:
        return DiskError(
            f"{place} cannot be written: {said}", fix="the disk may be failing: copy the folder to another one"
        )
    if problem.errno == errno.EISDIR:
        return DiskError(f"{place} cannot be written: it is a folder", fix=f"remove or rename {place}")
    return DiskError(f"{place} cannot be written: {said}", fix="give --home a folder of your own")


def is_about_disk(problem: OSError) -> bool:
    """Whether the disk or its permissions are at fault, rather than this program."""
    return problem.errno in FULL | READ_ONLY | NOT_OURS | BROKEN


def is_full(place: Path) -> bool:
    """Whether the disk of this folder is almost full."""
    try:
        facts = os.statvfs(place)
    except OSError:
        return False
    return facts.f_bavail * facts.f_frsize < LEAST_BYTES


def is_read_only(place: Path) -> bool:
    """Whether nothing can be written in this folder."""
    return not os.access(place, os.W_OK)
