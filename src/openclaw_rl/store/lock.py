"""One process to a folder: an advisory lock that ends with its holder, however that ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from openclaw_rl.errors import StoreError

NAME = "lock"


class FolderLock:
    """Holds `folder/lock`, with the pid of the holder in it, until it is freed or the process is gone."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._handle = _opened(folder, self._path)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            holder = os.pread(self._handle, 32, 0).decode("ascii", "replace").strip()
            os.close(self._handle)
            if not isinstance(problem, BlockingIOError):
                raise StoreError(
                    f"{self._path} cannot be locked: {problem.strerror}", fix="put the folder on a local disk"
                ) from problem
            raise StoreError(
                f"{folder} is in use by process {holder or 'unknown'}",
                fix="stop that server first, or give --home another folder",
            ) from None
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, f"{os.getpid()}\n".encode(), 0)

    def free(self) -> None:
        """Another process may have the folder. The file stays: removing it would let two processes in."""
        os.ftruncate(self._handle, 0)
        os.close(self._handle)


def _opened(folder: Path, path: Path) -> int:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.fchmod(handle, 0o600)
    except OSError as problem:
        raise StoreError(
            f"{folder} cannot be written: {problem.strerror}", fix="give --home a folder of your own"
        ) from problem
    return handle
