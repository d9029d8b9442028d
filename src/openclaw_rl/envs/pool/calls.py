"""Calls on a lease: their time limits, their order, and what happens after one is cut off."""

from __future__ import annotations

import asyncio
import time
import uuid

from openclaw_rl.envs.pool.leases import Lease
from openclaw_rl.envs.pool.operations import Operation
from openclaw_rl.envs.pool.pool import MARGIN_S, OPEN_S, Pool
from openclaw_rl.envs.pool.wire import SNAPSHOT, CallBody, Granted, encoded
from openclaw_rl.errors import PoolError

STEP_S = 600.0
MOST_S = 7200.0  # of any deadline
ONE_AT_A_TIME = frozenset({"reset", "step", "evaluate"})
LEAVES_UNKNOWN = frozenset({"reset", "step"})  # after one of these is cut off, the environment's state is unknown


async def begin_call(pool: Pool, lease: Lease, name: str, *, call: str, request: bytes, body: CallBody) -> Operation:
    """The operation of a call on a lease."""
    within_s = min(_allowed_s(lease, call, body) if body.deadline_s is None else body.deadline_s, MOST_S)
    if not within_s > 0:
        raise PoolError(f"the deadline of {within_s} s is over already", code="deadline_exceeded", status=504)

    async def work(operation: Operation) -> bytes:
        lease.renew()
        try:
            if call in ("fork", "snapshot"):
                return encoded(await _derived(pool, lease, call, within_s))
            return await ask(pool, lease, call, body, within_s=within_s, operation=operation)
        finally:
            lease.renew()

    return await pool.operations.start(name, lease=lease.id, call=call, request=request, work=work)


def _allowed_s(lease: Lease, call: str, body: CallBody) -> float:
    """The time limit of a call by default."""
    limits = lease.task.limits if lease.task is not None else None
    match call:
        case "reset":
            return limits.build_s + MARGIN_S if limits else OPEN_S
        case "evaluate":
            return limits.judge_s + 2 * MARGIN_S if limits else OPEN_S
        case "step":
            return STEP_S
        case "exec" | "shell_run":
            return body.timeout_s + MARGIN_S
    return OPEN_S


async def ask(
    pool: Pool, lease: Lease, call: str, body: CallBody, *, within_s: float, operation: Operation | None = None
) -> bytes:
    """The worker's answer as JSON. A call that is cut off ends the lease if its state is unknown."""
    until = time.monotonic() + within_s
    if call not in ONE_AT_A_TIME:
        watch = operation.output.add if operation is not None and call == "exec" else None
        return await lease.worker.ask(call, lease.id, {"body": body}, timeout_s=within_s, watch=watch)
    try:
        async with asyncio.timeout(within_s):
            await lease.turn.acquire()
    except TimeoutError:
        raise PoolError(
            f"another call on the lease ran for all of the {within_s:.1f} s",
            status=504,
            code="deadline_exceeded",
            failure="infrastructure",
        ) from None
    try:
        return await lease.worker.ask(call, lease.id, {"body": body}, timeout_s=until - time.monotonic())
    except (asyncio.CancelledError, PoolError) as problem:
        is_cut_off = isinstance(problem, asyncio.CancelledError) or problem.code == "deadline_exceeded"
        if is_cut_off and call in LEAVES_UNKNOWN:
            pool.end(lease, f"{call} was cut off")
        raise
    finally:
        lease.turn.release()


async def _derived(pool: Pool, lease: Lease, call: str, within_s: float) -> Granted:
    """A fork or a snapshot, as a separate lease in the same worker."""
    kind, memory_mb = (SNAPSHOT, 0) if call == "snapshot" else (lease.kind, lease.memory_mb)
    if call == "fork" and pool.taken >= pool.options.capacity:
        raise PoolError(
            "the pool is full: there is no place for a fork",
            fix="close a lease first, or ask again later",
            status=429,
            code="queue_full",
            failure="infrastructure",
            retry_s=pool.retry_s,
        )
    name = uuid.uuid4().hex
    task, source = (None, "") if call == "snapshot" else (lease.task, lease.source)
    other = Lease(name, lease.run, kind, lease.ttl_s, memory_mb, lease.worker, task, source)
    asked = lease.worker.ask(call, lease.id, {"lease": name}, timeout_s=within_s)
    await pool.stand(other, 0.0, asked)
    pool.counts[f"{call}s"] += 1
    return Granted(other.id, other.token, other.ttl_s)
