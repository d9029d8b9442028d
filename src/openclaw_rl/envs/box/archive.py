"""Archives that carry files into a box and out of it."""

from __future__ import annotations

import os
import sys
import tarfile
from pathlib import Path
from typing import IO

if sys.version_info < (3, 11, 4):  # whose tarfile has no filters
    from backports import tarfile  # type: ignore[no-redef]

ArchiveError = tarfile.TarError


def single_file(source: Path) -> tuple[bytes, int] | None:
    """The content of a file and its mode; None for a folder."""
    return (source.read_bytes(), source.stat().st_mode & 0o777) if source.is_file() else None


def pack(source: Path, file: IO[bytes]) -> None:
    """Packs a folder's content; in the archive, root owns everything."""

    def owned(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(fileobj=file, mode="w:", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(os.listdir(source)):
            archive.add(source / name, name, filter=owned)
    file.flush()


def unpack_foreign(archive: Path, place: Path) -> None:
    """Unpacks somebody's archive into `place`. Raises OSError, or ArchiveError for one that is broken, contains devices
    or would write outside `place`.
    """
    with tarfile.open(archive) as file:
        file.extractall(place, filter="data")


def unpack(file: IO[bytes], target: Path) -> None:
    """Unpacks an archive from a box: regular files and folders only, and only below `target`."""
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=file, mode="r:") as archive:
        for member in archive:
            if member.isreg() or member.isdir():
                archive.extract(member, target, filter="data")
