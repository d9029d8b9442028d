"""Servers forked off one loaded process (`benchmarks.kill_server`): told what to serve, watched and killed.

Every wait for one is bounded. A server that says nothing for `STALL_S` has stalled: the stacks of its threads are asked
for, it is ended with the process it was forked off, and counted by what was waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections import Counter

from benchmarks.common import progress

STALL_S = 60.0
STACKS_S = 2.0  # what a stalled server has for writing its stacks
TOLD_BYTES = 6000  # of its messages, where something went wrong


class StallError(Exception):
    """A wait was over before anything came."""


class Forks:
    """One process that forks, and the server it forked last. `stalls` counts the waits that were cut."""

    def __init__(self, *, stall_s: float = STALL_S) -> None:
        self.stalls: Counter[str] = Counter()
        self._stall_s = stall_s
        self._parent: asyncio.subprocess.Process | None = None
        self._pid: int | None = None  # the server's, until it is known to be gone
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed by `aclose`

    async def fork(self, home: object) -> int:
        """Has a server started on this folder; its process id. Raises StallError."""
        if self._parent is None:
            self._parent = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "benchmarks.kill_server",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=self._log,
                env={**os.environ, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"},
            )
        assert self._parent.stdin is not None
        self._parent.stdin.write(f"{home}\n".encode())
        self._pid = int((await self._line("fork"))[1])
        return self._pid

    async def word(self) -> list[str]:
        """What becomes of its start: `listening PORT SECONDS`, `refused KIND` or `gone STATUS`. Raises StallError."""
        said = await self._line("start")
        if said[0] == "gone":
            self._pid = None
        return said

    async def kill(self) -> None:
        """Kills the server with SIGKILL and waits until it is gone. Raises StallError."""
        while self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            if (await self._line("end"))[0] == "gone":
                self._pid = None

    async def aclose(self) -> None:
        """Ends both processes."""
        await self._end()
        self._log.close()

    def messages(self) -> str:
        """The last of what was written to standard error."""
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), TOLD_BYTES, max(0, size - TOLD_BYTES)).decode("utf-8", "replace")

    async def _line(self, awaited: str) -> list[str]:
        """The next line's words. Where none comes in time both processes are ended, and the next fork begins anew."""
        assert self._parent is not None and self._parent.stdout is not None
        try:
            async with asyncio.timeout(self._stall_s):
                line = (await self._parent.stdout.readline()).decode()
        except TimeoutError:
            self.stalls[awaited] += 1
            pids = [pid for pid in (self._pid, self._parent.pid) if pid is not None]
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGUSR1)
            await asyncio.sleep(STACKS_S)
            progress(f"a stall: no {awaited} from {pids} in {self._stall_s:g} s\n{self.messages()}")
            await self._end()
            raise StallError(awaited) from None
        if not line.endswith("\n"):
            raise RuntimeError(f"the process that forks servers is gone\n{self.messages()}")
        return line.split()

    async def _end(self) -> None:
        parent, self._parent = self._parent, None
        for pid in (self._pid, None if parent is None else parent.pid):
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._pid = None
        if parent is not None:
            await parent.wait()
