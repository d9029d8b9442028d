"""A running command in a box, and messages for what can go wrong."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from typing import Protocol

from openclaw_rl.envs.box import running
from openclaw_rl.envs.box.pipes import Lines
from openclaw_rl.errors import BoxError

TICKS = os.sysconf("SC_CLK_TCK")


class ProcessKiller(Protocol):
    """What a command needs from its box."""

    @property
    def id(self) -> str:
        """The box's name."""

    @property
    def is_alone(self) -> bool:
        """Whether at most one command runs in it."""

    async def kill_since(self, since: int, root: int, *, spare: list[int]) -> None:
        """Kills processes that began at `since` or later."""


class InsideProcess:
    """A command that runs in a box."""

    def __init__(self, box: ProcessKiller, lines: Lines, since: int) -> None:
        self._box = box
        self._lines = lines
        self._since = since
        self.inner = 0  # its pid inside the box

    async def began(self) -> None:
        """Waits until the command is about to run."""
        while (line := await self._lines.next()) is not None:
            kind, _, rest = line.partition(" ")
            if kind == "inner":
                self.inner = int(rest)
                return
            if kind == "err":
                raise as_box_error(refusal(rest))
        raise BoxError(f"box {self._box.id} is gone", fix="make another one")

    async def ended(self) -> running.ProcessEnd:
        """How it ended."""
        said = ""
        while (line := await self._lines.next()) is not None:
            kind, _, rest = line.partition(" ")
            if kind == "err":
                said = refusal(rest).strerror or "it cannot be started"
            if kind == "end":
                status, cpu_s = rest.split()
                code = os.waitstatus_to_exitcode(int(status))
                if said:
                    raise CannotStartError(said)
                return running.ProcessEnd(code if code >= 0 else 128 - code, -code if code < 0 else None, float(cpu_s))
        raise BoxError(f"box {self._box.id} is gone", fix="make another one")

    async def kill(self) -> None:
        """Kills it and its descendants, and orphans too if no other command runs."""
        await self._box.kill_since(self._since, 0 if self._box.is_alone else self.inner, spare=[])

    async def kill_inner(self, since: int) -> None:
        """Kills its processes that began at `since` or later, but never the process itself."""
        await self._box.kill_since(since, 0 if self._box.is_alone else self.inner, spare=[self.inner])

    def close(self) -> None:
        """Releases the report."""
        self._lines.close()


class CannotStartError(Exception):
    """The command or its folder is missing: the agent's mistake."""


def now_ticks() -> int:
    """The time in the unit of process start times: clock ticks since the machine started."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS)


def as_box_error(problem: OSError) -> BoxError:
    """A BoxError with a message for a failure of a box."""
    if problem.errno == errno.ENOSPC:
        return BoxError(f"no space is left for the box: {problem}", fix="free space, or give the box a larger disk")
    return BoxError(f"the box cannot do it: {problem.strerror or problem}")


@contextlib.contextmanager
def as_box_errors() -> Iterator[None]:
    """Raises the system's refusals as BoxError; a missing file stays FileNotFoundError."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as problem:
        raise as_box_error(problem) from problem


def refusal(said: str) -> OSError:
    """An error reported from inside: its number and message."""
    number, _, text = said.partition(" ")
    return OSError(int(number), text)
