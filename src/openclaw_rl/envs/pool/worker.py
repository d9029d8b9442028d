"""A worker process of a pool server: it makes boxes and runs environments, so that neither can stop the server.

Started with the number of a socket. It ends with everything it made when the socket closes, however the server ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from typing import BinaryIO

from openclaw_rl.core import pipe
from openclaw_rl.core.logs import set_up_logging
from openclaw_rl.envs.box.isolated import IsolatedBoxes
from openclaw_rl.envs.box.plain import PlainBoxes
from openclaw_rl.envs.box.probe import open_boxes
from openclaw_rl.envs.box.sandbox import Boxes, BoxSpec, Snapshot
from openclaw_rl.envs.open import EnvOptions
from openclaw_rl.envs.pool.box_env import BoxEnv
from openclaw_rl.envs.pool.catalogue import Catalogue
from openclaw_rl.envs.pool.held import Held, body_of
from openclaw_rl.envs.pool.messages import Beat, Hello, PrintedPiece, Setup, WorkerCall, WorkerCancel, WorkerReply
from openclaw_rl.envs.pool.processes import started_at
from openclaw_rl.envs.pool.wire import BOX, encoded
from openclaw_rl.envs.task import Failure
from openclaw_rl.envs.tasks.prepared import MOST_KEPT
from openclaw_rl.errors import BoxError, OpenClawRLError, PoolError, TaskError

log = logging.getLogger(__name__)
BEAT_S = 1.0
END_S = 10.0  # how long a worker without a server may take to end


class Worker:
    """The leases of a worker, and its answers to calls."""

    def __init__(self, link: socket.socket, setup: Setup, boxes: Boxes) -> None:
        self._keeper = boxes.keeper_pid if isinstance(boxes, IsolatedBoxes) else 0
        self._link = link
        self._boxes = boxes
        self._catalogue = Catalogue(setup.tasks, setup.kinds)
        self._prepared: dict[str, None] = {}  # states of tasks that the sources hold, the most recently used last
        self._to_drop: list[Snapshot] = []
        self._held: dict[str, Held] = {}
        self._asked: dict[int, asyncio.Task[None]] = {}
        self._lease_of: dict[int, str] = {}

    def take(self, message: object) -> None:
        """Begins the work that a message asks for."""
        match message:
            case WorkerCall():
                self._lease_of[message.id] = message.lease
                self._asked[message.id] = asyncio.get_running_loop().create_task(self._answer(message))
            case WorkerCancel() if message.id in self._asked:
                self._asked[message.id].cancel()

    def send(self, message: object) -> None:
        """Sends the server a message; does nothing if it is gone."""
        _send(self._link, message)

    async def beat(self) -> None:
        """Reports now and then that this process is alive; ends it if the process that makes its boxes has ended."""
        while True:
            if self._keeper and started_at(self._keeper) is None:
                log.error("the process that makes boxes has ended, so this worker ends, and another one starts")
                os._exit(1)
            self.send(Beat(tuple(self._prepared), len(self._held)))
            await asyncio.sleep(BEAT_S)

    async def _answer(self, ask: WorkerCall) -> None:
        try:
            async with asyncio.timeout(ask.timeout_s):
                reply = WorkerReply(ask.id, encoded(await self._do(ask)))
        except asyncio.CancelledError:
            reply = WorkerReply(ask.id, problem="it was cancelled", code="cancelled", status=409)
        except Exception as problem:  # the edge of a request: recorded, and answered
            reply = _failed(ask, problem)
        del self._asked[ask.id], self._lease_of[ask.id]
        self.send(reply)

    async def _do(self, ask: WorkerCall) -> object:
        match ask.call:
            case "open":
                self._held[ask.lease] = await self._open(ask)
                return None
            case "prepare":
                name, task = self._catalogue.find(str(ask.args["task"]), str(ask.args["source"]))
                box = await self._catalogue.sources[name].start(task, self._boxes)
                if box is not None:
                    await box.aclose()
                self._is_prepared(f"{name}/{task.id}")
                return None
            case "close":
                await self._stop_all(ask.lease, but=ask.id)
                await self._close(ask.lease)
                return None
        held = self._held.get(ask.lease)
        if held is None:
            raise PoolError(
                "the worker does not hold this lease", status=410, code="lease_lost", failure="infrastructure"
            )
        if ask.call in ("fork", "snapshot"):
            self._held[str(ask.args["lease"])] = await (held.fork() if ask.call == "fork" else held.kept())
            return None

        def watch(data: bytes) -> None:
            self.send(PrintedPiece(ask.id, data))

        result = await held.call(ask.call, body_of(ask.args), watch)
        if ask.call == "reset" and held.task is not None:
            self._is_prepared(f"{held.source}/{held.task.id}")
        return result

    async def _open(self, ask: WorkerCall) -> Held:
        task, spec, snapshot = (ask.args.get(name) for name in ("task", "spec", "snapshot"))
        if task is not None:
            name, found = self._catalogue.find(str(task), str(ask.args["source"]))
            kind, source = str(ask.args["kind"]), self._catalogue.sources[name]
            if kind == BOX:
                return Held(env=BoxEnv(source, self._boxes), task=found, source=name)
            env = self._catalogue.open(kind, source, self._boxes, EnvOptions(records=bool(ask.args["records"])))
            return Held(env=env, task=found, source=name)
        if snapshot is not None:
            kept = self._held.get(str(snapshot))
            if kept is None or kept.snapshot is None or kept.spec is None:
                raise PoolError("there is no such snapshot", status=404, code="unknown_snapshot")
            return Held(alone=await self._boxes.create(kept.spec, at=kept.snapshot))
        assert isinstance(spec, BoxSpec)
        return Held(alone=await self._boxes.create(spec))

    async def _stop_all(self, lease: str, *, but: int) -> None:
        """Cancels the calls that still run on a lease, and waits for their end."""
        running = {self._asked[number] for number, of in self._lease_of.items() if of == lease and number != but}
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    async def _close(self, lease: str) -> None:
        held = self._held.pop(lease, None)
        if held is not None:
            await held.aclose()
            self._to_drop += [held.snapshot] if held.snapshot is not None else []
        for snapshot in [*self._to_drop]:
            with contextlib.suppress(BoxError):  # a box is based on it: tried again at the next closing
                await self._boxes.drop(snapshot)
                self._to_drop.remove(snapshot)

    def _is_prepared(self, name: str) -> None:
        """Records that a source has prepared a task's state; sources keep the most recently used."""
        self._prepared.pop(name, None)
        self._prepared[name] = None
        if len(self._prepared) > MOST_KEPT:
            del self._prepared[next(iter(self._prepared))]

    async def aclose(self) -> None:
        """Cancels all calls and releases everything."""
        for task in self._asked.values():
            task.cancel()
        for lease in [*self._held]:
            with contextlib.suppress(OpenClawRLError):  # closing the boxes removes the rest
                await self._close(lease)


def _failed(ask: WorkerCall, problem: Exception) -> WorkerReply:
    """Who is at fault for an error: the environment, for unusable tasks and for bugs of environments."""
    environment, infrastructure = Failure.ENVIRONMENT, Failure.INFRASTRUCTURE
    status, code, failure, fix = 500, "environment_failed", str(environment), "see the pool's log"
    what = f"the environment raised {type(problem).__name__} in {ask.call}: {str(problem)[:500]}"
    match problem:
        case PoolError():
            return WorkerReply(ask.id, b"", problem.problem, problem.fix, problem.code, problem.failure, problem.status)
        case TimeoutError():
            status, code, failure, fix = 504, "deadline_exceeded", infrastructure, "give more time"
            what = f"{ask.call} took longer than its deadline of {ask.timeout_s:.1f} s"
        case TaskError():
            status, code, what, fix = 422, "broken_task", problem.problem, problem.fix
        case FileNotFoundError() if ask.call in ("read", "download"):
            return WorkerReply(ask.id, b"", f"there is no such file: {problem}", "", "no_such_file", None, 404)
        case BoxError():
            status, code, failure, what, fix = 502, "box_failed", infrastructure, problem.problem, problem.fix
        case OSError():
            status, code, failure, what = 502, "system_failed", infrastructure, f"{ask.call} failed: {problem}"
        case OpenClawRLError():
            status, code, what, fix = 422, "cannot_be_opened", problem.problem, problem.fix
        case _:
            log.error("%s failed", ask.call, exc_info=problem)
    return WorkerReply(ask.id, b"", what, fix, code, failure, status)


def _send(link: socket.socket, message: object) -> None:
    with contextlib.suppress(OSError):
        link.sendall(pipe.packed(message))


async def _work(link: socket.socket, incoming: BinaryIO) -> None:
    loop = asyncio.get_running_loop()
    inbox: asyncio.Queue[object | None] = asyncio.Queue()

    def read() -> None:
        while True:
            try:
                message = pipe.read(incoming)
            except OSError:
                message = None
            if message is None:
                end = threading.Timer(END_S, os._exit, (1,))  # in case an environment blocks the loop
                end.daemon = True
                end.start()
            with contextlib.suppress(RuntimeError):  # the loop has ended, because it could not begin
                loop.call_soon_threadsafe(inbox.put_nowait, message)
            if message is None:
                return

    threading.Thread(target=read, daemon=True, name="from-server").start()
    setup = await inbox.get()
    if not isinstance(setup, Setup):
        return
    try:
        boxes = await open_boxes(setup.box)
    except OpenClawRLError as problem:
        _send(link, Hello(problem.problem, problem.fix))
        return
    try:
        worker = Worker(link, setup, boxes)
        place = str(boxes.place) if isinstance(boxes, PlainBoxes) else ""
        worker.send(Hello(limits=dict(boxes.limits_in_force), place=place))
        beating = loop.create_task(worker.beat())
        while (message := await inbox.get()) is not None:
            worker.take(message)
        beating.cancel()
        await worker.aclose()
    except OpenClawRLError as problem:
        _send(link, Hello(problem.problem, problem.fix))
    finally:
        await boxes.aclose()


def main() -> None:
    """Started by `workers` with the number of a socket."""
    set_up_logging(text="%(asctime)s %(levelname)s pool worker: %(message)s")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server ends it in order
    link = socket.socket(fileno=int(sys.argv[1]))
    link.set_inheritable(False)
    with link.makefile("rb") as incoming:
        asyncio.run(_work(link, incoming))


if __name__ == "__main__":
    main()
