"""A client of one pool or several: leases are placed on pools with room, renewed while in use, and closed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import Counter
from collections.abc import Sequence
from types import TracebackType

import aiohttp
import msgspec

from openclaw_rl.envs.pool.remote import IS_AWAY, HeldLease, RemotePool
from openclaw_rl.envs.pool.wire import PoolLeaseBody, PrewarmBody
from openclaw_rl.envs.task import Failure
from openclaw_rl.errors import ConfigError, PoolError

log = logging.getLogger(__name__)
FRESH_S = 1.0  # maximum age of a server's status when a place is chosen
PAUSE_S = 0.5
CLOSE_S = 5.0
# Codes of refusals after which another server may still give a lease.
MOVES_ON = frozenset({"queue_full", "draining", "no_worker", "unknown_task", "unknown_kind", "journal_failed", IS_AWAY})


class PoolClient:
    """Used with `async with`. Leases go to the pool with most free places, then to one that has prepared the task.

    `run` names the client: pools are fair between runs. A pool that does not answer for `patience_s` is given up, and
    its leases count as failures of the infrastructure.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        key: str,
        run: str = "default",
        patience_s: float = 15.0,
        lease_s: float = 600.0,
        ttl_s: float | None = None,
    ) -> None:
        if not urls:
            raise ConfigError("no pool is named", fix="give the URL of at least one")
        self._urls = list(dict.fromkeys(urls))
        self._key = key
        self._run = run
        self._patience_s = patience_s
        self._lease_s = lease_s
        self._ttl_s = ttl_s
        self._held: dict[str, HeldLease] = {}
        self.counts: Counter[str] = Counter()
        self.waited_s = 0.0  # spent on waiting for places

    async def __aenter__(self) -> PoolClient:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        self.servers = [RemotePool(url, self._key, self._session, patience_s=self._patience_s) for url in self._urls]
        self._renewing = asyncio.get_running_loop().create_task(self._renew())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._renewing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._renewing
        await asyncio.gather(*[self.give_back(lease) for lease in self._held.values()])
        await self._session.close()

    async def lease(self, body: PoolLeaseBody) -> HeldLease:
        """A lease on any pool. PoolError with each pool's reason if none gives one within `lease_s`."""
        body.run, body.ttl_s = self._run, body.ttl_s or self._ttl_s
        state = f"{body.source}/{body.task}" if body.source else f"/{body.task}"
        began = time.monotonic()
        while True:
            refused: list[PoolError] = []
            for server in await self._by_room(state, body.task):
                left_s = self._lease_s - (time.monotonic() - began)
                try:
                    lease = await server.lease(body, within_s=max(0.1, left_s))
                except PoolError as problem:
                    if problem.code not in MOVES_ON:
                        raise
                    self.counts[f"moved_on_{problem.code}"] += 1
                    refused.append(problem)
                    if problem.code == "unknown_task" and body.task is not None:
                        server.lacks.add(body.task)
                    continue
                self._held[lease.granted.lease] = lease
                self.waited_s += time.monotonic() - began
                return lease
            self._check_hope(refused, body, time.monotonic() - began)
            pause_s = min((problem.retry_s for problem in refused if problem.retry_s), default=PAUSE_S)
            await asyncio.sleep(min(pause_s, max(PAUSE_S, self._lease_s - (time.monotonic() - began))))

    async def _open_servers(
        self, state: str, task: str | None, *, even_if_away: bool
    ) -> list[tuple[int, bool, float, int, RemotePool]]:
        """Each server that gives out leases, with its key for sorting."""
        asked = [server.status(fresh_s=FRESH_S, even_if_away=even_if_away) for server in self.servers]
        return [
            (
                -status.free,
                not any(name.endswith(state) for name in status.prepared),
                status.waiting / max(1, status.capacity),
                number,
                server,
            )
            for number, (server, status) in enumerate(zip(self.servers, await asyncio.gather(*asked), strict=True))
            if status is not None and status.state == "open" and task not in server.lacks
        ]

    async def _by_room(self, state: str, task: str | None) -> list[RemotePool]:
        """The servers that may have a place, best first: by free places, prepared tasks, queue per place."""
        found = await self._open_servers(state, task, even_if_away=False)
        found = found or await self._open_servers(state, task, even_if_away=True)  # it may be back
        return [server for *_, server in sorted(found, key=lambda one: one[:4])]

    def _check_hope(self, refused: list[PoolError], body: PoolLeaseBody, waited_s: float) -> None:
        """Raises PoolError if waiting longer is of no use."""
        if body.task is not None and all(body.task in server.lacks for server in self.servers):
            raise PoolError(
                f"no pool has task {body.task!r}",
                fix="start the pools with --tasks and the folder of this task",
                status=404,
                code="unknown_task",
                failure=Failure.ENVIRONMENT,
            )
        if waited_s > (self._lease_s if refused else min(self._lease_s, self._patience_s)):
            said = "; ".join(sorted({problem.problem for problem in refused})) or "none answers, or all are draining"
            raise PoolError(
                f"no pool gave a lease in {waited_s:.0f} s: {said}",
                fix="start more pools, or give them a larger --capacity",
                status=503,
                code=IS_AWAY,
                failure=Failure.INFRASTRUCTURE,
            )

    def adopt(self, lease: HeldLease) -> HeldLease:
        """Adds a lease from a call, such as a fork or a snapshot, to those that are renewed."""
        self._held[lease.granted.lease] = lease
        return lease

    async def give_back(self, lease: HeldLease) -> None:
        """Closes a lease; if its server is away, the lease expires by itself."""
        if self._held.pop(lease.granted.lease, None) is None:
            return
        try:
            await lease.server.ask("DELETE", lease.path, token=lease.granted.token, within_s=CLOSE_S)
        except PoolError as problem:
            self.counts["not_closed"] += 1
            log.info("lease=%s is not closed: %s", lease.granted.lease, problem.problem)

    async def prewarm(self, tasks: Sequence[str], *, source: str | None = None) -> None:
        """Asks every pool to prepare tasks that are needed soon; pools that cannot are skipped."""
        for server in self.servers:
            try:
                await server.ask("POST", "/v1/prewarm", PrewarmBody(list(tasks), source), within_s=CLOSE_S)
            except PoolError as problem:
                log.info("%s does not prepare: %s", server.url, problem.problem)

    async def _renew(self) -> None:
        """Renews the leases in use, until cancelled."""
        while True:
            held = [*self._held.values()]
            await asyncio.sleep(min([lease.granted.ttl_s / 4 for lease in held] or [0.5]))
            by_server: dict[RemotePool, dict[str, int]] = {}
            for lease in self._held.values():
                by_server.setdefault(lease.server, {})[lease.granted.lease] = lease.granted.token
            await asyncio.gather(*[self._renewed(server, leases) for server, leases in by_server.items()])

    async def _renewed(self, server: RemotePool, leases: dict[str, int]) -> None:
        try:
            said = await server.ask("POST", "/v1/renew", {"leases": leases}, within_s=CLOSE_S)
        except PoolError as problem:
            self.counts["not_renewed"] += 1
            log.info("%s does not renew: %s", server.url, problem.problem)
            return
        lost = msgspec.json.decode(said, type=dict[str, dict[str, str]])["lost"]
        self.counts["lost"] += len(lost)
        for name in lost:  # its owner gets the error at the next call
            self._held.pop(name, None)


def key_from_environment() -> str:
    """The key of the pools, from OPENCLAW_RL_POOL_KEY. ConfigError if it is not set."""
    key = os.environ.get("OPENCLAW_RL_POOL_KEY", "")
    if not key:
        raise ConfigError(
            "the key of the pool is not set",
            fix="set OPENCLAW_RL_POOL_KEY to the content of the file api_key in the pool's folder",
        )
    return key
