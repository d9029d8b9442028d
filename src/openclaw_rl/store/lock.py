"""One process for each folder: an advisory lock that ends with its holder, however that ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

from openclaw_rl.core.disk import unwritable
from openclaw_rl.core.inside import check_links
from openclaw_rl.errors import StoreError

NAME = "lock"
LOOKS, PAUSE_S = 20, 0.05  # a process that only checks who has the lock takes it for a moment


class FolderLock:
    """Locks `folder/lock`, which contains the holder's pid, until it is freed or the process is gone."""

    def __init__(self, folder: Path) -> None:
        check_links(folder)
        self._path = folder / NAME
        self._handle = _opened(folder, self._path)
        try:
            _take(self._handle)
        except OSError as problem:
            holder = _holder(self._handle)
            os.close(self._handle)
            if not isinstance(problem, BlockingIOError):
                raise StoreError(
                    f"{self._path} cannot be locked: {problem.strerror}", fix="put the folder on a local disk"
                ) from problem
            raise _in_use(folder, holder) from None
        try:
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, f"{os.getpid()}\n".encode(), 0)
        except OSError as problem:
            os.close(self._handle)
            raise unwritable(self._path, problem) from problem

    def free(self) -> None:
        """Releases the folder. The file stays: removing it would let two processes in."""
        with contextlib.suppress(OSError):  # a disk that became read-only meanwhile; the lock ends anyway
            os.ftruncate(self._handle, 0)
        os.close(self._handle)


def check_free(folder: Path) -> None:
    """Raises StoreError if a process has the lock; for reading a folder that cannot be written or locked."""
    check_links(folder)
    holder = holder_of(folder)
    if holder is not None:
        raise _in_use(folder, str(holder))


def holder_of(folder: Path) -> int | None:
    """The process that has locked the folder; None if there is none. A copied lock file is not locked."""
    try:
        handle = os.open(folder / NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        held = _holder(handle)
        return int(held) if held.isdecimal() else None
    except OSError:  # a file system without locks, on which no server can run
        return None
    finally:
        os.close(handle)
    return None


def _take(handle: int) -> None:
    """Locks, or raises OSError. Retries if the holder has not written its pid: it may only be checking."""
    for _ in range(LOOKS):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if _holder(handle):
                raise
            time.sleep(PAUSE_S)
        else:
            return
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _in_use(folder: Path, holder: str) -> StoreError:
    return StoreError(
        f"{folder} is in use by process {holder or 'unknown'}",
        fix="stop that server first, or give --home another folder",
    )


def _holder(handle: int) -> str:
    return os.pread(handle, 32, 0).decode("ascii", "replace").strip()


def _opened(folder: Path, path: Path) -> int:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.fchmod(handle, 0o600)
    except IsADirectoryError as problem:
        raise unwritable(path, problem) from problem
    except OSError as problem:
        raise unwritable(folder, problem) from problem
    return handle
