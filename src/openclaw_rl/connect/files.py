"""Writes a client's configuration atomically, keeps a copy of the old file, and does not write entries twice."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.errors import ConfigError


@dataclass(frozen=True, slots=True)
class FileChange:
    """The result for a file: `backup` contains its earlier text, None if the file is new or unchanged."""

    path: Path
    has_changed: bool
    backup: Path | None = None


def old_text(path: Path) -> str | None:
    """The file's text; None if there is none. Raises ConfigError if it cannot be read."""
    try:
        return path.read_text("utf-8") if path.exists() else None
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(f"{path} cannot be read: {problem}", fix="check the file") from problem


def put(path: Path, text: str, *, now_s: float | None = None) -> FileChange:
    """Writes the file with this text; a new one is readable only by its owner, since it contains a key."""
    before = old_text(path)
    if before == text:
        return FileChange(path, has_changed=False)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        backup = None if before is None else _copy(path, before, time.time() if now_s is None else now_s)
        _replace(path, text, mode=0o600 if before is None else path.stat().st_mode & 0o777)
    except OSError as problem:
        raise ConfigError(
            f"{path} cannot be written: {problem.strerror or problem}", fix="use --print, and add the entry by hand"
        ) from problem
    return FileChange(path, has_changed=True, backup=backup)


def take_away(path: Path, *, now_s: float | None = None) -> FileChange:
    """Removes the file, and keeps a copy."""
    before = old_text(path)
    if before is None:
        return FileChange(path, has_changed=False)
    try:
        backup = _copy(path, before, time.time() if now_s is None else now_s)
        path.unlink()
    except OSError as problem:
        raise ConfigError(f"{path} cannot be removed: {problem.strerror or problem}") from problem
    return FileChange(path, has_changed=True, backup=backup)


def _copy(path: Path, text: str, now_s: float) -> Path:
    """A copy next to the file that overwrites no earlier one."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now_s))
    backup = path.with_name(f"{path.name}.{stamp}.bak")
    number = 1
    while backup.exists():
        number += 1
        backup = path.with_name(f"{path.name}.{stamp}-{number}.bak")
    _replace(backup, text, mode=path.stat().st_mode & 0o777)
    return backup


def _replace(path: Path, text: str, *, mode: int) -> None:
    real = path.resolve()  # a link stays a link
    fresh = real.with_name(f"{real.name}.{os.getpid()}.new")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
    fresh.chmod(mode)
    fresh.replace(real)
