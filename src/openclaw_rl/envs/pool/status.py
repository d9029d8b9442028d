"""The status of a pool: for `openclaw-rl pool status`, for clients that choose among pools, and as metrics."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from openclaw_rl.envs.pool.pool import Pool

MOST_NAMED = 500  # at most this many prepared states are listed


class WorkerStatus(msgspec.Struct):
    """One worker process."""

    pid: int
    leases: int
    held: int  # environments, boxes and snapshots that it reports
    prepared: int


class PoolStatus(msgspec.Struct):
    """The status of a pool."""

    state: str  # open or draining
    capacity: int
    taken: int
    memory_mb: int
    memory_taken_mb: int
    queue: dict[str, int]
    queue_most: int
    leases: dict[str, int]  # by run
    snapshots: int
    operations: int  # running
    workers: list[WorkerStatus]
    kinds: list[str]
    sources: dict[str, int]
    prepared: list[str]
    limits: dict[str, str]
    counts: dict[str, int]
    seconds: dict[str, float]
    life: int

    @property
    def free(self) -> int:
        """The number of free places."""
        return max(0, self.capacity - self.taken)

    @property
    def waiting(self) -> int:
        """The number of requests waiting for a place."""
        return sum(self.queue.values())


def status_of(pool: Pool) -> PoolStatus:
    """How it stands."""
    by_run: dict[str, int] = {}
    for lease in pool.leases.values():
        if lease.takes_place:
            by_run[lease.run] = by_run.get(lease.run, 0) + 1
    alive = pool.workers.alive
    prepared = sorted({name for link in alive for name in link.beat.prepared})
    return PoolStatus(
        state="draining" if pool.is_draining else "open",
        capacity=pool.options.capacity,
        taken=pool.taken,
        memory_mb=pool.options.memory_mb,
        memory_taken_mb=pool.memory_mb,
        queue=pool.queue.waiting(),
        queue_most=pool.options.queue,
        leases=by_run,
        snapshots=sum(not lease.takes_place for lease in pool.leases.values()),
        operations=len(pool.operations.live),
        workers=[WorkerStatus(link.pid, len(link.leases), link.beat.held, len(link.beat.prepared)) for link in alive],
        kinds=["box", *pool.catalogue.kinds],
        sources={name: len(source.tasks) for name, source in pool.catalogue.sources.items()},
        prepared=prepared[:MOST_NAMED],
        limits=dict(alive[0].hello.limits) if alive else {},
        counts=_counts(pool),
        seconds={name: round(value, 3) for name, value in pool.seconds.items()},
        life=pool.journal.life,
    )


def _counts(pool: Pool) -> dict[str, int]:
    own = {
        "queue_refused": pool.queue.refused,
        "operations_replayed": pool.operations.replayed,
        "operations_lost": pool.operations.lost,
        "workers_started": pool.workers.started,
    }
    return {**own, **pool.counts}


class PoolGauges(Collector):
    """The same for Prometheus, read at each scrape."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def collect(self) -> Iterator[Metric]:
        """The present numbers."""
        status = status_of(self._pool)
        gauges = {
            "capacity": ("Leases that may be open at a time.", status.capacity),
            "taken": ("Leases that are open or being opened.", status.taken),
            "waiting": ("Requests for a lease that wait.", status.waiting),
            "snapshots": ("Snapshots held.", status.snapshots),
            "operations_live": ("Operations under way.", status.operations),
            "workers": ("Worker processes.", len(status.workers)),
            "prepared": ("Prepared states.", len(status.prepared)),
            "memory_taken_mb": ("Memory that the tasks of all leases may use.", status.memory_taken_mb),
            "draining": ("1 while nothing more is given out.", int(self._pool.is_draining)),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"openclaw_rl_pool_{name}", text, value=value)
        events = CounterMetricFamily("openclaw_rl_pool_events", "What happened, by kind.", labels=["event"])
        for name, value in status.counts.items():
            events.add_metric([name], value)
        yield events
        calls = CounterMetricFamily("openclaw_rl_pool_calls", "Operations ended.", labels=["call", "status"])
        for (call, code), count in self._pool.calls.items():
            calls.add_metric([call, str(code)], count)
        yield calls
        seconds = CounterMetricFamily("openclaw_rl_pool_seconds", "Seconds spent, by call.", labels=["call"])
        for name, spent in status.seconds.items():
            seconds.add_metric([name], spent)
        yield seconds


def metrics_text(pool: Pool) -> bytes:
    """All metrics in Prometheus's text format."""
    registry = CollectorRegistry()
    registry.register(PoolGauges(pool))
    return generate_latest(registry)
