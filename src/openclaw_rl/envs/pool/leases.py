"""Leases: who may use which environment until when, and the errors for leases that have ended."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from openclaw_rl.envs.pool.journal import KeptLease
from openclaw_rl.envs.pool.wire import SNAPSHOT
from openclaw_rl.envs.pool.workers import WorkerLink
from openclaw_rl.envs.task import Task
from openclaw_rl.errors import PoolError

CLOSED = "closed"  # by its client: the only end of a lease that is not a failure


@dataclass(slots=True, eq=False)
class Lease:
    """An open lease."""

    id: str
    run: str
    kind: str
    ttl_s: float
    memory_mb: int
    worker: WorkerLink
    task: Task | None = None
    source: str = ""
    token: int = 0
    ending: asyncio.Task[None] | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # calls on the environment are done one after the other
    expires_s: float = 0.0

    def __post_init__(self) -> None:
        self.renew()

    @property
    def takes_place(self) -> bool:
        """Whether it takes a place: a snapshot does not, it contains only files."""
        return self.kind != SNAPSHOT

    @property
    def is_expired(self) -> bool:
        """Whether nobody renewed it in time."""
        return time.monotonic() > self.expires_s

    def renew(self) -> None:
        """Renews it for its full duration from now."""
        self.expires_s = time.monotonic() + self.ttl_s

    def check(self, token: str) -> None:
        """Raises PoolError: 409 if the token is not this lease's, 410 if the lease is ending."""
        if token != str(self.token):
            raise PoolError(
                f"{token or 'no token'!r} is not the token of lease {self.id}",
                fix="send the token that came with the lease in the header Lease-Token",
                status=409,
                code="wrong_token",
            )
        if self.ending is not None:
            raise gone(self.id, "is being closed")


def gone(name: str, reason: str) -> PoolError:
    """The error for a request on a lease that ended."""
    return PoolError(
        f"lease {name} {reason}",
        fix="begin the episode again",
        status=410,
        code="lease_ended",
        failure="infrastructure",
    )


def gone_as(kept: KeptLease | None, name: str, token: str) -> PoolError:
    """The same for a lease known only from the journal, or not at all."""
    if kept is None:
        return PoolError(f"there is no lease {name!r}", status=404, code="unknown_lease", failure="infrastructure")
    if token != str(kept.token):
        return PoolError(f"{token!r} is not the token of lease {name}", status=409, code="wrong_token")
    if kept.reason == CLOSED:
        return PoolError(f"lease {name} was closed by its client", status=410, code="lease_closed")
    return gone(name, f"ended: {kept.reason}")
