"""A command from its start to its end: bounded streams, limited time, and the reason for its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from openclaw_rl.envs.box.pipes import Capture, close_all, memory_file
from openclaw_rl.envs.box.sandbox import BoxLimits, ExecResult, KilledBy, Output, Watch
from openclaw_rl.errors import BoxError

KILL_S = 10.0  # how long a command may take to end after it was killed
BY_SIGNAL = {signal.SIGXCPU: KilledBy.CPU, signal.SIGXFSZ: KilledBy.FILE_SIZE}


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How a process ended."""

    exit_status: int
    signal: int | None
    cpu_s: float | None


class Process(Protocol):
    """A running command."""

    async def ended(self) -> ProcessEnd:
        """How it ended. BoxError if the box ended first."""

    async def kill(self) -> None:
        """Kills it and its descendants."""

    def close(self) -> None:
        """Releases its resources."""


Start = Callable[[list[int]], Awaitable[Process]]


async def run(
    start: Start,
    *,
    stdin: bytes,
    timeout_s: float,
    limits: BoxLimits,
    was_memory: Callable[[], bool],
    watch: Watch | None = None,
) -> ExecResult:
    """Runs what `start` starts with the three standard streams. `was_memory` returns whether memory ran out."""
    flooded = asyncio.Event()
    (out, out_write), (err, err_write) = os.pipe(), os.pipe()
    streams = [memory_file(stdin), out_write, err_write]
    captures = [
        Capture(fd, kept_bytes=limits.kept_bytes, read_bytes=limits.read_bytes, on_flood=flooded.set, watch=watch)
        for fd in (out, err)
    ]
    began, process = time.monotonic(), None
    try:
        try:
            process = await start(streams)
        finally:
            close_all(streams)
        ended, killed_by = await _watched(process, flooded, timeout_s=timeout_s)
        if killed_by is None:
            killed_by = what_killed(ended, was_memory=was_memory)
        stdout, stderr = (capture.take() for capture in captures)
        return ExecResult(ended.exit_status, stdout, stderr, time.monotonic() - began, killed_by, ended.cpu_s)
    finally:
        if process is not None:
            process.close()
        for capture in captures:
            capture.close()


def what_killed(ended: ProcessEnd, *, was_memory: Callable[[], bool]) -> KilledBy | None:
    """What ended a command that was not killed here. A shell reports a signal of its last command as 128 + n."""
    number = ended.signal or (ended.exit_status - 128 if 128 < ended.exit_status < 192 else None)
    if number == signal.SIGKILL and was_memory():
        return KilledBy.MEMORY
    if number in BY_SIGNAL:
        return BY_SIGNAL[signal.Signals(number)]
    return KilledBy.SIGNAL if ended.signal else None


@contextlib.contextmanager
def one_error() -> Iterator[None]:
    """Raises the single error of a task group without the group."""
    try:
        yield
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from group.exceptions[0].__cause__


async def _watched(process: Process, flooded: asyncio.Event, *, timeout_s: float) -> tuple[ProcessEnd, KilledBy | None]:
    with one_error():
        return await _watched_in_group(process, flooded, timeout_s=timeout_s)


async def _watched_in_group(
    process: Process, flooded: asyncio.Event, *, timeout_s: float
) -> tuple[ProcessEnd, KilledBy | None]:
    async with asyncio.TaskGroup() as group:
        ending = group.create_task(process.ended())
        flooding = group.create_task(flooded.wait())
        try:
            await asyncio.wait({ending, flooding}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await process.kill()
            raise
        flooding.cancel()
        if ending.done():
            return await ending, None
        killed_by = KilledBy.OUTPUT if flooded.is_set() else KilledBy.TIMEOUT
        await process.kill()
        await asyncio.wait({ending}, timeout=KILL_S)
        if not ending.done():
            ending.cancel()
            raise BoxError(f"a command that was killed did not end within {KILL_S:.0f} s", fix="make another box")
        return await ending, killed_by


def not_started(why: str, *, duration_s: float) -> ExecResult:
    """The result of a missing command, as a shell would report it."""
    return ExecResult(127, Output(b""), Output(f"{why}\n".encode()), duration_s)
