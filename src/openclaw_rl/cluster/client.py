"""A cluster for the rest of the program: hosts for processes. A child process talks to Ray."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from openclaw_rl.cluster.calls import (
    Call,
    CallFailure,
    End,
    Forget,
    Join,
    Joined,
    Place,
    Placed,
    Send,
    StartProcess,
    Wait,
)
from openclaw_rl.cluster.roles import Group
from openclaw_rl.core import pipe
from openclaw_rl.errors import ClusterError, ConfigError, OpenClawRLError

log = logging.getLogger(__name__)
END_S = 30.0
JOIN_S = 60.0  # in addition to the time for room


@dataclass(slots=True)
class Cluster:
    """Made by `join`. A child that ended, as it does when its cluster goes away, is started again by the next call."""

    _join: Join
    joined: Joined | None = None
    _child: asyncio.subprocess.Process | None = None
    _reader: asyncio.Task[None] | None = None
    _asked: dict[int, asyncio.Future[object]] = field(default_factory=dict)
    _number: int = 0
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _is_closing: bool = False

    @classmethod
    async def join(cls, address: str, groups: Sequence[Group], *, place_s: float = 60.0) -> Cluster:
        """The cluster, with reserved room for all groups. Raises ConfigError if it is not available or too small,
        ClusterError if it broke.
        """
        cluster = cls(Join(address, tuple(groups), place_s))
        try:
            await cluster._ready()
        except BaseException:
            await cluster.aclose()
            raise
        return cluster

    @property
    def address(self) -> str:
        """The address where it was joined."""
        return self._join.address

    def host(self, role: str, number: int) -> NodeHost:
        """The place of a role's process."""
        return NodeHost(self, Place(role, number))

    async def ask(self, call: Call) -> object:
        """The child's answer. Raises ClusterError, ConfigError."""
        await self._ready()
        return await self._told(call)

    async def aclose(self) -> None:
        """Ends everything that was placed, and leaves the cluster."""
        self._is_closing = True
        child, self._child = self._child, None
        if child is not None:
            assert child.stdin is not None
            child.stdin.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    await child.wait()
            if child.returncode is None:
                child.kill()
                await child.wait()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)

    async def _ready(self) -> None:
        async with self._lock:
            if self._is_closing:
                raise ClusterError("this program has left the cluster")
            if self._child is not None and self._child.returncode is None and self.joined is not None:
                return
            self.joined = None
            self._child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "openclaw_rl.cluster.driver"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=os.environ | {"RAY_DEDUP_LOGS": "0"},
                start_new_session=True,  # Ctrl-C is handled by this program, which ends its children in order
            )
            self._reader = asyncio.create_task(self._read(self._child))
            try:
                async with asyncio.timeout(len(self._join.groups) * self._join.place_s + JOIN_S):
                    found = await self._told(self._join)
            except TimeoutError:
                self._child.kill()
                raise ClusterError(
                    f"the cluster at {self._join.address} does not answer", fix="see `ray status`"
                ) from None
            if not isinstance(found, Joined):
                raise TypeError(f"joining was answered by {type(found).__name__}")
            self.joined = found
            log.info("joined the cluster at %s: %s", self._join.address, ", ".join(found.nodes))

    async def _told(self, call: Call) -> object:
        child = self._child
        if child is None or child.stdin is None:
            raise ClusterError("this program has left the cluster")
        self._number += 1
        number, answer = self._number, asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            with contextlib.suppress(OSError):  # the reader reports its end
                child.stdin.write(pipe.packed((number, call)))
                await child.stdin.drain()
            found = await answer
        finally:
            self._asked.pop(number, None)
        if isinstance(found, CallFailure):
            kind = ConfigError if found.is_setting else ClusterError
            raise kind(found.problem, fix=found.fix)
        return found

    async def _read(self, child: asyncio.subprocess.Process) -> None:
        assert child.stdout is not None
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                (size,) = pipe.HEADER.unpack(await child.stdout.readexactly(pipe.HEADER.size))
                number, found = pickle.loads(await child.stdout.readexactly(size))
                if (answer := self._asked.get(number)) is not None and not answer.done():
                    answer.set_result(found)
        code = await child.wait()
        self.joined = None
        for answer in self._asked.values():
            if not answer.done():
                answer.set_result(CallFailure(f"what speaks with the cluster ended with {code}"))


class NodeHost:
    """A `Host` on the node of its place."""

    def __init__(self, cluster: Cluster, place: Place) -> None:
        self._cluster = cluster
        self._place = place
        self.environment: dict[str, str] = {}  # for a process there to use its GPUs
        self._waiting: asyncio.Task[str] | None = None

    @property
    def pid(self) -> int:
        """Unknown here."""
        return 0

    @property
    def has_ended(self) -> str:
        """How the process ended, or what happened to its node."""
        return self._waiting.result() if self._waiting is not None and self._waiting.done() else ""

    async def open(self) -> tuple[str, int]:
        """The address of a node with room for it."""
        await self._stop_waiting()
        found = await self._ask(self._place)
        if not isinstance(found, Placed):
            raise TypeError(f"a place was answered by {type(found).__name__}")
        self.environment = found.environment
        return found.address, found.port

    async def folder(self, folder: Path, *, names: Sequence[str] = (), is_kept: bool = False) -> Path:
        """The folder's path on the node."""
        found = await self._ask(Send(self._place, folder, tuple(names), is_kept))
        if not isinstance(found, Path):
            raise TypeError(f"a folder was answered by {type(found).__name__}")
        return found

    async def forget(self, folder: Path) -> None:
        """Lets the node remove the files."""
        await self._ask(Forget(self._place, folder))

    async def start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Starts it on the node; what it prints comes to this program's stderr.

        If the command is this program's Python, the node's own is used.
        """
        words = tuple("" if word == sys.executable and not at else word for at, word in enumerate(command))
        await self._ask(StartProcess(self._place, words, self.environment | dict(environment)))
        self._waiting = asyncio.create_task(self._ended())

    async def wait(self) -> str:
        """How it ended."""
        return "" if self._waiting is None else await asyncio.shield(self._waiting)

    async def end(self) -> None:
        """Ends it, if its node lives."""
        await self._stop_waiting()
        if self._cluster.joined is not None:
            with contextlib.suppress(ClusterError):
                await self._ask(End(self._place))

    async def _ended(self) -> str:
        try:
            return str(await self._cluster.ask(Wait(self._place)))
        except OpenClawRLError as problem:
            return problem.problem

    async def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            await asyncio.gather(self._waiting, return_exceptions=True)
            self._waiting = None

    async def _ask(self, call: Call) -> object:
        try:
            return await self._cluster.ask(call)
        except ConfigError as problem:  # the cluster has changed since this program joined it
            raise ClusterError(problem.problem, fix=problem.fix) from problem
