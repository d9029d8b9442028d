"""The place of a process that this program starts: on this machine, or on a node of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol


class Host(Protocol):
    """Room for one process at a time. Methods raise EngineError if the machine behind it is gone or cannot do it."""

    @property
    def pid(self) -> int:
        """The process's id; 0 if none runs, or if it runs on another machine."""

    @property
    def has_ended(self) -> str:
        """How the last process ended; empty while it runs, and before the first."""

    async def open(self) -> tuple[str, int]:
        """The address under which this program reaches a process there, and a free port; ends the earlier process."""

    async def folder(self, folder: Path, *, names: Sequence[str] = (), is_kept: bool = False) -> Path:
        """The path of a folder's files there; they are sent if they are missing.

        `names` are the files that matter, all of them if it is empty. With `is_kept` the files outlive this host.
        """

    async def forget(self, folder: Path) -> None:
        """Releases the files of a folder that was sent."""

    async def start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Starts a process, with this added to the environment; after `open`."""

    async def wait(self) -> str:
        """How the process ended, after its end."""

    async def end(self) -> None:
        """Ends the process and its descendants."""
