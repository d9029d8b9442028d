"""A pool: leases on environments that run in worker processes, given out fairly, renewed, reaped and recorded."""

from __future__ import annotations

import asyncio
import logging
import os
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field

from openclaw_rl.envs.box.probe import BoxKind
from openclaw_rl.envs.box.sandbox import BoxSpec
from openclaw_rl.envs.pool.catalogue import Catalogue
from openclaw_rl.envs.pool.journal import Journal
from openclaw_rl.envs.pool.leases import CLOSED, Lease, gone, gone_as
from openclaw_rl.envs.pool.messages import Setup
from openclaw_rl.envs.pool.operations import Operation, Operations
from openclaw_rl.envs.pool.queue import FairQueue, Waiter
from openclaw_rl.envs.pool.wire import BOX, SNAPSHOT, Granted, PoolLeaseBody, PrewarmBody, encoded
from openclaw_rl.envs.pool.workers import WorkerLink, Workers
from openclaw_rl.errors import PoolError

log = logging.getLogger(__name__)
REAP_S = 0.5
PRUNE_S = 60.0
OPEN_S = 60.0
CLOSE_S = 20.0
MARGIN_S = 30.0  # in addition to the time that a task or a command may take


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """How much a pool gives out, and for how long."""

    capacity: int = 8  # leases at a time
    memory_mb: int = 0  # limit for the tasks of all leases together; 0: no limit
    workers: int = 2
    queue: int = 256  # requests that may wait
    ttl_s: float = 60.0
    keep_s: float = 3600.0  # results and events of ended leases
    box: BoxKind = BoxKind.AUTO
    kinds: dict[str, str] = field(default_factory=dict)


class Pool:
    """The pool of one server. `run` must be entered before the first request."""

    def __init__(self, journal: Journal, tasks: tuple[str, ...], options: PoolOptions) -> None:
        self.options = options
        self.journal = journal
        self.catalogue = Catalogue(tasks, options.kinds)
        self.queue = FairQueue(options.queue)
        self.leases: dict[str, Lease] = {}
        self.is_draining = False
        self.counts: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.calls: Counter[tuple[str, int]] = Counter()
        setup = Setup(tasks, options.kinds, options.box)
        self.workers = Workers(options.workers, setup, journal, self._worker_ended)
        self._opening = 0  # places whose lease is being opened
        self._opening_mb = 0
        self._empty = asyncio.Event()
        self._endless: list[asyncio.Task[None]] = []

    async def start(self, group: asyncio.TaskGroup) -> None:
        """Ends what an earlier server left, starts the workers, and runs the pool's tasks in the group."""
        self._group = group
        self.operations = Operations(self.journal, group, self._counted)
        lost = await self.journal.end_all("the server was restarted")
        if lost:
            log.warning("%d leases of an earlier server were open; they are ended", lost)
        self.counts["leases_lost_at_restart"] = lost
        self._endless += await self.workers.run(group)
        self._endless.append(group.create_task(self._reap()))

    async def aclose(self) -> None:
        """Ends every lease with its calls, and the workers."""
        self.is_draining = True
        for operation in self.operations.live:
            operation.cancel(draining())
        await asyncio.gather(*[self.end(lease, "the pool was stopped") for lease in self.leases.values()])
        for task in self._endless:
            task.cancel()

    @property
    def taken(self) -> int:
        """How many places are given out."""
        return self._opening + sum(lease.takes_place for lease in self.leases.values())

    @property
    def memory_mb(self) -> int:
        """The memory that the tasks of all leases may use."""
        return self._opening_mb + sum(lease.memory_mb for lease in self.leases.values())

    @property
    def retry_s(self) -> int:
        """The likely wait for a place: the mean length of a lease."""
        ended = self.counts["leases_ended"]
        return max(1, min(60, round(self.seconds["leases"] / ended))) if ended else 2

    async def lease(self, name: str, request: bytes, body: PoolLeaseBody) -> Operation:
        """The operation that results in a lease. PoolError if none is possible."""
        memory_mb = self._needed(body)
        known = name in {operation.id for operation in self.operations.live}
        if not known and await self.journal.operation(name) is None:
            if self.is_draining:
                raise draining()
            self.queue.check_room(self.retry_s)

        async def work(_operation: Operation) -> bytes:
            return encoded(await self._granted(body, memory_mb))

        return await self.operations.start(name, lease="", call="lease", request=request, work=work)

    def _needed(self, body: PoolLeaseBody) -> int:
        """The memory that a request needs. Raises PoolError if the request is invalid here."""
        if body.kind != BOX and body.kind not in self.catalogue.kinds:
            known = ", ".join([BOX, *self.catalogue.kinds])
            raise PoolError(f"there is no kind {body.kind!r} here", fix=f"ask for one of: {known}", code="unknown_kind")
        if body.task is not None:
            return self.catalogue.find(body.task, body.source)[1].resources.memory_mb
        if body.kind != BOX:
            raise PoolError(f"a lease of the kind {body.kind} needs a task", code="no_task")
        if body.snapshot is not None:
            self._snapshot(body.snapshot)
        return (body.box or BoxSpec()).limits.memory_mb

    def _snapshot(self, name: str) -> Lease:
        lease = self.leases.get(name)
        if lease is None or lease.kind != SNAPSHOT:
            raise PoolError(
                f"there is no snapshot {name!r} here", status=404, code="unknown_snapshot", failure="infrastructure"
            )
        return lease

    async def _granted(self, body: PoolLeaseBody, memory_mb: int) -> Granted:
        began = time.monotonic()
        waiter = Waiter(body.run, memory_mb)
        self.queue.add(waiter)
        self._give_out()
        try:
            await waiter.granted
        except asyncio.CancelledError:
            if waiter.granted.done() and not waiter.granted.cancelled() and waiter.granted.exception() is None:
                self._place_is_free(waiter)
            self.queue.remove(waiter)
            raise
        waited_s = time.monotonic() - began
        try:
            lease = await self._opened(body, memory_mb, waited_s)
        finally:
            self._place_is_free(waiter)  # the lease counts for it now, if there is one
        self.counts["leases_opened"] += 1
        self.seconds["queue"] += waited_s
        return Granted(lease.id, lease.token, lease.ttl_s, waited_s)

    def _place_is_free(self, waiter: Waiter) -> None:
        self._opening -= 1
        self._opening_mb -= waiter.memory_mb
        self._give_out()

    def _fits(self, waiter: Waiter) -> bool:
        if not self.taken:
            return True
        most = self.options.memory_mb
        return self.taken < self.options.capacity and (not most or self.memory_mb + waiter.memory_mb <= most)

    def _give_out(self) -> None:
        """Gives free places to the waiters whose turn it is."""
        while (waiter := self.queue.next(self._fits)) is not None:
            if not waiter.granted.done():
                self._opening += 1
                self._opening_mb += waiter.memory_mb
                waiter.granted.set_result(None)
        if not self.leases and not self._opening:
            self._empty.set()

    async def _opened(self, body: PoolLeaseBody, memory_mb: int, waited_s: float) -> Lease:
        source, task, args = "", None, dict[str, object]()
        if body.task is not None:
            source, task = self.catalogue.find(body.task, body.source)
            args = {"task": task.id, "source": source, "kind": body.kind, "records": body.records}
            worker = await self.workers.least_busy(f"{source}/{task.id}")
        elif body.snapshot is not None:
            args, worker = {"snapshot": body.snapshot}, self._snapshot(body.snapshot).worker
        else:
            args, worker = {"spec": body.box or BoxSpec()}, await self.workers.least_busy("")
        ttl_s = min(max(body.ttl_s or self.options.ttl_s, 0.1), 3600.0)
        lease = Lease(uuid.uuid4().hex, body.run, body.kind, ttl_s, memory_mb, worker, task, source)
        return await self.stand(lease, waited_s, worker.ask("open", lease.id, args, timeout_s=OPEN_S))

    async def stand(self, lease: Lease, waited_s: float, opening: Awaitable[object]) -> Lease:
        """Records a lease, opens it in its worker and counts it; undoes everything if that fails."""
        lease.token = await self.journal.open_lease(
            lease.id,
            run=lease.run,
            kind=lease.kind,
            task=lease.task.id if lease.task else "",
            worker=lease.worker.pid,
            waited_s=waited_s,
        )
        lease.worker.leases.add(lease.id)
        self.leases[lease.id] = lease
        self._empty.clear()
        try:
            await opening
        except BaseException:
            self.end(lease, "it could not be opened")
            raise
        lease.renew()
        return lease

    async def held(self, name: str, token: str) -> Lease:
        """The lease of this id, renewed. PoolError if this token does not prove it."""
        lease = self.leases.get(name)
        if lease is None:
            raise gone_as(await self.journal.lease(name), name, token)
        lease.check(token)
        lease.renew()
        return lease

    def end(self, lease: Lease, reason: str) -> asyncio.Task[None]:
        """Ends a lease and all its calls. Its place is free when its worker has released everything."""
        if lease.ending is None:
            lease.ending = self._group.create_task(self._end(lease, reason))
        return lease.ending

    async def _end(self, lease: Lease, reason: str) -> None:
        for operation in self.operations.live:
            if operation.lease == lease.id and operation.task is not None:
                operation.cancel(gone(lease.id, f"ended: {reason}"))
        try:
            await lease.worker.ask("close", lease.id, {}, timeout_s=CLOSE_S)
        except PoolError as problem:  # a worker that ended needs nothing more; one that failed is not trusted
            if not lease.worker.is_gone:
                lease.worker.kill(f"lease {lease.id} cannot be closed: {problem.problem}")
        self.leases.pop(lease.id, None)
        lease.worker.leases.discard(lease.id)
        self.counts["leases_ended"] += lease.takes_place
        self.counts["leases_closed" if reason == CLOSED else f"leases_ended_{reason.replace(' ', '_')}"] += 1
        self._give_out()
        try:
            await self.journal.end_lease(lease.id, reason)
        except PoolError as problem:  # it ends anyway, and the next start records that
            log.error("the end of lease=%s is not recorded: %s", lease.id, problem)

    async def _worker_ended(self, link: WorkerLink) -> None:
        self.counts["workers_lost"] += 1
        for lease in [lease for lease in self.leases.values() if lease.worker is link]:
            self.end(lease, "its worker ended")

    async def _reap(self) -> None:
        """Ends leases that were not renewed, busy ones too, and requests for a lease whose client is gone."""
        pruned_s = time.monotonic()
        while True:
            await asyncio.sleep(min(REAP_S, self.options.ttl_s / 4))
            for lease in [*self.leases.values()]:
                if lease.is_expired and lease.ending is None:
                    log.info("lease=%s of run=%s was not renewed for %.0f s", lease.id, lease.run, lease.ttl_s)
                    self.end(lease, "expired")
            for operation in self.operations.live:
                if operation.call == "lease" and time.monotonic() - operation.seen_s > self.options.ttl_s:
                    operation.cancel(gone(operation.id, "was abandoned by its client"))
            if time.monotonic() - pruned_s > PRUNE_S:
                pruned_s = time.monotonic()
                try:
                    await self.operations.note_again()
                    await self.journal.prune(self.options.keep_s)
                except PoolError as problem:
                    log.error("old records are not removed: %s", problem)

    async def prewarm(self, body: PrewarmBody) -> int:
        """Begins to prepare the states of tasks that are needed soon; returns how many were new."""
        count = 0
        for name in body.tasks:
            source, task = self.catalogue.find(name, body.source)
            state = f"{source}/{task.id}"
            if any(state in link.beat.prepared for link in self.workers.alive):
                continue
            link = await self.workers.least_busy(state)
            args = {"task": task.id, "source": source}
            self._group.create_task(self._prepare(link, args, task.limits.build_s + MARGIN_S))
            count += 1
        return count

    async def _prepare(self, link: WorkerLink, args: Mapping[str, object], within_s: float) -> None:
        try:
            await link.ask("prepare", "", args, timeout_s=within_s)
            self.counts["prewarmed"] += 1
        except PoolError as problem:
            self.counts["prewarms_failed"] += 1
            log.warning("task=%s cannot be prepared: %s", args["task"], problem)

    async def drain(self, *, is_on: bool) -> None:
        """With `is_on`, gives out nothing more and refuses those who wait; open leases continue. Else ends that."""
        self.is_draining = is_on
        if is_on:
            self.queue.refuse_all(draining())

    async def emptied(self) -> None:
        """Waits until no lease is open."""
        while self.leases or self._opening:
            self._empty.clear()
            await self._empty.wait()

    def _counted(self, call: str, status: int, duration_s: float) -> None:
        self.calls[call, status] += 1
        self.seconds[call] += duration_s


def default_capacity() -> int:
    """Four leases a core: most of an episode's time is the policy's."""
    return 4 * (os.cpu_count() or 1)


def default_memory_mb() -> int:
    """Twice the machine's memory: tasks seldom use all that they may."""
    return 2 * (os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20)


def draining() -> PoolError:
    """The error for requests while nothing is given out."""
    return PoolError(
        "this pool gives out no more leases",
        fix="ask another pool",
        status=503,
        code="draining",
        failure="infrastructure",
        retry_s=10,
    )
