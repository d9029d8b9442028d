"""A command under way in a box, and what can go wrong with it, in words."""

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
    """What a command needs of its box."""

    @property
    def id(self) -> str:
        """What the box is called."""
        ...

    @property
    def is_alone(self) -> bool:
        """Whether no more than one command runs in it."""
        ...

    async def kill_since(self, since: int, root: int, *, spare: list[int]) -> None:
        """Kills what began at `since` or later."""
        ...


class InsideProcess:
    """A command that runs in a box."""

    def __init__(self, box: ProcessKiller, lines: Lines, since: int) -> None:
        self._box = box
        self._lines = lines
        self._since = since
        self.inner = 0  # its number inside the box

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
        """Kills it, what it started, and what it left behind where nothing else runs beside it."""
        await self._box.kill_since(self._since, 0 if self._box.is_alone else self.inner, spare=[])

    async def kill_inner(self, since: int) -> None:
        """Kills what began later than `since`, but never the process itself."""
        await self._box.kill_since(since, 0 if self._box.is_alone else self.inner, spare=[self.inner])

    def close(self) -> None:
        """Lets go of the report."""
        self._lines.close()


class CannotStartError(Exception):
    """The command is not there, or its folder is not: the agent's mistake."""


def now_ticks() -> int:
    """The time as processes' starts are given: clock ticks since the machine started."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS)


def as_box_error(problem: OSError) -> BoxError:
    """What went wrong with a box, in words."""
    if problem.errno == errno.ENOSPC:
        return BoxError(f"no space is left for the box: {problem}", fix="free space, or give the box a larger disk")
    return BoxError(f"the box cannot do it: {problem.strerror or problem}")


@contextlib.contextmanager
def as_box_errors() -> Iterator[None]:
    """Raises what the system refused as BoxError; what is not there stays FileNotFoundError."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as problem:
        raise as_box_error(problem) from problem


def refusal(said: str) -> OSError:
    """An error as it was reported from inside: its number and its words."""
    number, _, text = said.partition(" ")
    return OSError(int(number), text)
