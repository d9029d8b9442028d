"""A persistent bash: numbered commands, exit statuses over a separate pipe, time-outs that leave the shell alive."""

from __future__ import annotations

import asyncio
import os
import shlex
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from openclaw_rl.envs.box.commands import words_of
from openclaw_rl.envs.box.kept import until_writable
from openclaw_rl.envs.box.pipes import Capture, Lines, close_all
from openclaw_rl.envs.box.running import ProcessEnd, one_error, what_killed
from openclaw_rl.envs.box.sandbox import BoxLimits, KilledBy, ShellResult
from openclaw_rl.envs.box.under_way import TICKS, now_ticks
from openclaw_rl.errors import BoxError

COME_BACK_S = 1.0  # how long a shell whose commands were killed may take to report
CONTROL = 3  # the shell's reports; closed for commands


class ShellProcess(Protocol):
    """A running bash."""

    async def ended(self) -> ProcessEnd:
        """How it ended."""

    async def kill(self) -> None:
        """Kills it and its descendants."""

    async def kill_inner(self, since: int) -> None:
        """Kills descendants that began at `since` or later, but not the bash."""

    def close(self) -> None:
        """Releases its resources."""


Start = Callable[[list[int], str | None], Awaitable[ShellProcess]]


class BashShell:
    """A shell that runs one command at a time."""

    def __init__(
        self, start: Start, on_end: Callable[[], None], *, limits: BoxLimits, out_of_memory: Callable[[], int]
    ) -> None:
        self._start = start
        self._on_end = on_end
        self._limits = limits
        self._out_of_memory = out_of_memory
        self._lock = asyncio.Lock()
        self._flooded = asyncio.Event()
        self._process: ShellProcess | None = None
        self._last = 0
        self._ended = -1  # when the last command ended
        self._cwd: str | None = None

    async def open(self) -> None:
        """Starts the bash, in the folder of the last one."""
        (stdin, self._stdin), (out, out_write) = os.pipe(), os.pipe()
        control, control_write = os.pipe()
        self._flooded.clear()
        try:
            self._process = await self._start([stdin, out_write, out_write, control_write], self._cwd)
        except BaseException:
            close_all([self._stdin, out, control])
            raise
        finally:
            close_all([stdin, out_write, control_write])
        os.set_blocking(self._stdin, False)
        self._output = Capture(
            out, kept_bytes=self._limits.kept_bytes, read_bytes=self._limits.read_bytes, on_flood=self._flooded.set
        )
        self._control = Lines(control)

    async def run(self, command: str, *, timeout_s: float) -> ShellResult:
        """The result of a command."""
        words_of(command)  # raises if no shell can take it
        async with self._lock:
            if self._process is None:
                await self.open()
            self._last += 1
            out_of_memory, began = self._out_of_memory(), time.monotonic()
            try:
                with one_error():
                    status, killed_by = await self._done(command, timeout_s)
            except BaseException:
                await self._end()
                raise
            self._ended = now_ticks()
            output = self._output.take()
            if status is None:
                status, was_killed_by = await self._lost(killed=killed_by is not None)
                killed_by = killed_by or was_killed_by
            if killed_by is None and status == 137 and self._out_of_memory() > out_of_memory:
                killed_by = KilledBy.MEMORY
            return ShellResult(
                self._last,
                status,
                output,
                time.monotonic() - began,
                self._cwd or "",
                killed_by,
                is_shell_lost=self._process is None,
            )

    async def _done(self, command: str, timeout_s: float) -> tuple[int | None, KilledBy | None]:
        """The exit status, or None if the shell is lost; and what ended the command."""
        assert self._process is not None
        if now_ticks() == self._ended:  # new processes must be distinguishable from earlier ones
            await asyncio.sleep(1 / TICKS)
        since = now_ticks()
        async with asyncio.TaskGroup() as group:
            flood = group.create_task(self._flooded.wait())
            status = group.create_task(self._status(command))
            await asyncio.wait({status, flood}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            flood.cancel()
            killed_by = None
            if not status.done():
                killed_by = KilledBy.OUTPUT if self._flooded.is_set() else KilledBy.TIMEOUT
                await self._process.kill_inner(since)
                await asyncio.wait({status}, timeout=COME_BACK_S)
            if status.done():
                return status.result(), killed_by
            status.cancel()
            return None, killed_by

    async def _status(self, command: str) -> int | None:
        """Runs a command and waits for its status; None if the shell ended."""
        line = (
            f"eval {shlex.quote(command)} {CONTROL}>&- </dev/null; "
            f"printf '%d %d %q\\n' {self._last} $? \"$PWD\" >&{CONTROL}\n"
        )
        try:
            await _write_all(self._stdin, line.encode("utf-8", "surrogateescape"))
        except BrokenPipeError:
            return None
        while (said := await self._control.next()) is not None:
            number, status, cwd = said.split(" ", 2)
            if number == str(self._last):
                self._cwd = "".join(shlex.split(cwd)) or None
                self._flooded.clear()
                return int(status)
        return None

    async def _lost(self, *, killed: bool) -> tuple[int, KilledBy | None]:
        """How an unresponsive shell ended; the next command starts a new one."""
        assert self._process is not None
        if killed:
            await self._process.kill()
        ended = await self._process.ended()
        await self._end()
        return ended.exit_status, what_killed(ended, was_memory=lambda: False)

    async def _end(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            self._control.close()
            self._output.close()
            close_all([self._stdin])
            await process.kill()
            process.close()
            self._on_end()

    async def aclose(self) -> None:
        """Ends the shell."""
        try:
            await self._end()
        except BoxError:
            return  # the box is gone, and the shell with it


async def _write_all(fd: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            await until_writable(fd)
