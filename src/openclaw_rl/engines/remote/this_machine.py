"""A server's process on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from openclaw_rl.errors import EngineError

END_S = 10.0
LOOPBACK = "127.0.0.1"


class ThisMachine:
    """A `Host`: a child process in its own session."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """The process's id."""
        return 0 if self._process is None else self._process.pid

    @property
    def has_ended(self) -> str:
        """How it ended."""
        code = None if self._process is None else self._process.returncode
        return "" if code is None else str(code)

    async def open(self) -> tuple[str, int]:
        """A free port of the loopback interface."""
        await self.end()  # workers of a killed server outlive it and keep their memory
        with socket.socket() as one:
            one.bind((LOOPBACK, 0))
            return LOOPBACK, int(one.getsockname()[1])

    async def folder(self, folder: Path, *, names: Sequence[str] = (), is_kept: bool = False) -> Path:
        """The folder itself."""
        return folder

    async def forget(self, folder: Path) -> None:
        """Nothing was sent."""

    async def start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Starts it; its output goes to stderr."""
        added = os.environ | dict(environment)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command, env=added, stdout=sys.stderr, stderr=sys.stderr, start_new_session=True
            )
        except OSError as problem:
            raise EngineError(
                f"{command[0]} cannot be started: {problem}", fix="correct engine.remote.python"
            ) from problem

    async def wait(self) -> str:
        """How it ended."""
        if self._process is not None:
            await self._process.wait()
        return self.has_ended

    async def end(self) -> None:
        """Ends it with all its children, which share its session."""
        process, self._process = self._process, None
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(END_S):
                        await process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
