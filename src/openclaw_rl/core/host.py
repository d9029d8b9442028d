"""Where a process runs that this program starts: on this machine, or on a node of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol


class Host(Protocol):
    """Room for one process at a time. Methods raise EngineError where the machine behind it is gone or cannot do it."""

    @property
    def pid(self) -> int:
        """The process's id; 0 where none runs, or where it runs on another machine."""
        ...

    @property
    def has_ended(self) -> str:
        """How the process that was started last ended; empty while it runs, and before the first."""
        ...

    async def open(self) -> tuple[str, int]:
        """The address under which this program reaches a process there, and a free port; ends the one that ran."""
        ...

    async def folder(self, folder: Path, *, names: Sequence[str] = (), is_kept: bool = False) -> Path:
        """The path under which a folder's files are found there; they are sent where they are not.

        `names` are the files that matter, all of them where it is empty. Files that are kept outlast this host.
        """
        ...

    async def forget(self, folder: Path) -> None:
        """The files of a folder that was sent are needed no longer."""
        ...

    async def start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Starts a process, with this added to the environment; after `open`."""
        ...

    async def wait(self) -> str:
        """How the process ended, once it has."""
        ...

    async def end(self) -> None:
        """Ends the process with all that it started."""
        ...
