"""The worker processes of a pool server: starts, calls and watches them, and replaces those that end or hang."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path

import openclaw_rl
from openclaw_rl.core import pipe
from openclaw_rl.envs.pool.journal import Journal, KeptWorker
from openclaw_rl.envs.pool.messages import Beat, Hello, PrintedPiece, Setup, WorkerCall, WorkerCancel, WorkerReply
from openclaw_rl.envs.pool.processes import ended, started_at
from openclaw_rl.errors import BoxError, PoolError

log = logging.getLogger(__name__)
START_S = 60.0
END_S = 15.0
GRACE_S = 5.0  # time after its deadline for a worker to report that it was late
STOP_S = 20.0  # time for cancelled work to stop
HANG_S = 30.0  # a worker silent for this long counts as dead
AGAIN_S = 1.0  # pause before another attempt to start a worker


class WorkerLink:
    """One running worker."""

    def __init__(self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.process = process
        self.hello = Hello()
        self.kept = KeptWorker(process.pid, started_at(process.pid) or "", "")
        self.beat = Beat((), 0)
        self.leases: set[str] = set()
        self.is_gone = False
        self._reader = reader
        self._writer = writer
        self._seen_s = time.monotonic()
        self._asked: dict[int, asyncio.Future[WorkerReply]] = {}
        self._watching: dict[int, Callable[[bytes], None]] = {}
        self._last = 0

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    @property
    def silent_s(self) -> float:
        """The seconds since its last message."""
        return time.monotonic() - self._seen_s

    async def receive(self) -> object | None:
        """The next message; None if it is gone."""
        try:
            (size,) = pipe.HEADER.unpack(await self._reader.readexactly(pipe.HEADER.size))
            message: object = pickle.loads(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, OSError):
            return None
        self._seen_s = time.monotonic()
        return message

    def send(self, message: object) -> None:
        """Sends a message; does nothing if it is gone."""
        if not self.is_gone:
            self._writer.write(pipe.packed(message))

    async def listen(self) -> None:
        """Passes on its messages until it ends; then all open calls fail."""
        while (message := await self.receive()) is not None:
            match message:
                case WorkerReply() if message.id in self._asked:
                    asked = self._asked[message.id]
                    if not asked.done():
                        asked.set_result(message)
                case PrintedPiece() if message.id in self._watching:
                    self._watching[message.id](message.data)
                case Beat():
                    self.beat = message
        self.is_gone = True
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(_lost())
        self._writer.close()
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await asyncio.to_thread(self.process.wait)

    async def ask(
        self,
        call: str,
        lease: str,
        args: Mapping[str, object],
        *,
        timeout_s: float,
        watch: Callable[[bytes], None] | None = None,
    ) -> bytes:
        """Its answer as JSON. PoolError if it fails, ends meanwhile, or is late."""
        if self.is_gone:
            raise _lost()
        self._last += 1
        number = self._last
        asked: asyncio.Future[WorkerReply] = asyncio.get_running_loop().create_future()
        self._asked[number] = asked
        if watch is not None:
            self._watching[number] = watch
        try:
            self.send(WorkerCall(number, call, lease, args, timeout_s))
            async with asyncio.timeout(timeout_s + GRACE_S):
                reply = await asyncio.shield(asked)
        except TimeoutError:
            self.kill(f"{call} did not end {GRACE_S:.0f} s after its deadline")
            raise PoolError(
                f"{call} hung beyond its deadline of {timeout_s:.1f} s, and its worker was ended",
                fix="begin the episode again",
                status=504,
                code="deadline_exceeded",
                failure="infrastructure",
            ) from None
        except asyncio.CancelledError:
            self.send(WorkerCancel(number))
            await self._stopped(asked, call)  # the call has then ended and cannot disturb later ones
            raise
        finally:
            del self._asked[number]
            self._watching.pop(number, None)
        if reply.problem:
            raise PoolError(reply.problem, fix=reply.fix, status=reply.status, code=reply.code, failure=reply.failure)
        return reply.result

    async def _stopped(self, asked: asyncio.Future[WorkerReply], call: str) -> None:
        try:
            async with asyncio.timeout(STOP_S):
                await asyncio.shield(asked)
        except TimeoutError:
            self.kill(f"{call} did not stop {STOP_S:.0f} s after it was cancelled")
        except PoolError:
            return  # it is gone, with all that it ran

    def kill(self, why: str) -> None:
        """Kills it."""
        log.warning("worker pid=%d is ended: %s", self.pid, why)
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    async def aclose(self) -> None:
        """Asks it to end, and kills it if it does not."""
        if not self.is_gone:
            self._writer.close()
        try:
            await asyncio.wait_for(asyncio.to_thread(self.process.wait), END_S)
        except TimeoutError:
            self.kill("it did not end in order")
            await asyncio.to_thread(self.process.wait)


class Workers:
    """A number of workers that are kept running."""

    def __init__(self, count: int, setup: Setup, journal: Journal, on_end: Callable[[WorkerLink], Awaitable[None]]):
        self._count = count
        self._setup = setup
        self._journal = journal
        self._on_end = on_end
        self._running: dict[int, WorkerLink] = {}
        self._changed = asyncio.Event()
        self.started = 0
        self.problem = ""  # why the last one could not start

    @property
    def alive(self) -> list[WorkerLink]:
        """The workers that take calls."""
        return [link for link in self._running.values() if not link.is_gone]

    async def run(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """The tasks that keep the workers running; ends leftovers of earlier servers. BoxError if one cannot start."""
        for worker in await self._journal.workers():
            if await asyncio.to_thread(ended, worker, within_s=END_S / 2):
                log.warning("worker pid=%d of an earlier server was still there and was killed", worker.pid)
            await self._journal.remove_worker(worker)
        links: list[WorkerLink] = []
        try:
            for _ in range(self._count):
                links.append(await self._start())
        except BaseException:
            for link in links:
                await link.aclose()
            raise
        return [group.create_task(self._keep(number, link)) for number, link in enumerate(links)]

    async def least_busy(self, state: str) -> WorkerLink:
        """The worker with the fewest leases; among equals, one that has prepared the state. Waits until one runs."""
        try:
            async with asyncio.timeout(START_S):
                while not self.alive:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise PoolError(
                f"no worker runs: {self.problem or 'they are being started'}",
                status=503,
                code="no_worker",
                failure="infrastructure",
            ) from None
        return min(self.alive, key=lambda link: (len(link.leases), state not in link.beat.prepared))

    async def _keep(self, number: int, link: WorkerLink | None) -> None:
        while True:
            if link is None:
                try:
                    link = await self._start()
                except (BoxError, OSError) as problem:
                    self.problem = str(problem)
                    log.error("a worker cannot be started: %s", problem)
                    await asyncio.sleep(AGAIN_S)
                    continue
            self._running[number] = link
            self._changed.set()
            try:
                await self._watched(link)
            except asyncio.CancelledError:
                await link.aclose()
                raise
            await self._on_end(link)
            await asyncio.to_thread(ended, link.kept, within_s=0.0)
            with contextlib.suppress(PoolError):  # the next start removes the record
                await self._journal.remove_worker(link.kept)
            link = None

    async def _watched(self, link: WorkerLink) -> None:
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(link.listen())
            while not listening.done():
                await asyncio.wait({listening}, timeout=HANG_S / 10)
                if link.silent_s > HANG_S and not listening.done():
                    link.kill(f"it was silent for {HANG_S:.0f} s")
        log.warning("worker pid=%d ended with %s", link.pid, link.process.returncode)

    async def _start(self) -> WorkerLink:
        ours, theirs = socket.socketpair()
        try:
            process = _begun(theirs.fileno())
        finally:
            theirs.close()
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        link = WorkerLink(process, reader, writer)
        try:
            await self._journal.add_worker(link.kept)
            link.send(self._setup)
            async with asyncio.timeout(START_S):
                hello = await link.receive()
            if not isinstance(hello, Hello) or hello.problem:
                what = hello.problem if isinstance(hello, Hello) else "it ended while starting"
                raise BoxError(what, fix=hello.fix if isinstance(hello, Hello) else "see the log")
            link.kept = replace(link.kept, place=hello.place)
            await self._journal.add_worker(link.kept)
        except BaseException:
            await link.aclose()
            raise
        link.hello = hello
        self.started += 1
        return link


def _begun(fd: int) -> subprocess.Popen[bytes]:
    """The process. The output of environments goes to the server's log."""
    package = str(Path(openclaw_rl.__file__).parent.parent)
    search = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH", "")])])
    return subprocess.Popen(
        [sys.executable, "-m", "openclaw_rl.envs.pool.worker", str(fd)],
        pass_fds=[fd],
        stdin=subprocess.DEVNULL,
        stdout=2,
        env={**os.environ, "PYTHONPATH": search},
        start_new_session=True,
    )


def _lost() -> PoolError:
    return PoolError(
        "the worker that held this lease ended",
        fix="begin the episode again",
        status=502,
        code="worker_lost",
        failure="infrastructure",
    )
