"""The queue for places: bounded, and fair between runs, however much each asks for."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from openclaw_rl.errors import PoolError


@dataclass(slots=True, eq=False)
class Waiter:
    """A waiting request and its needs."""

    run: str
    memory_mb: int
    granted: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class FairQueue:
    """Waiters by run. When the queue is full, requests are refused with 429; `refused` counts them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._runs: OrderedDict[str, deque[Waiter]] = OrderedDict()
        self.refused = 0

    def __len__(self) -> int:
        return sum(map(len, self._runs.values()))

    def check_room(self, retry_s: int) -> None:
        """Raises PoolError (429) if the queue is full."""
        if len(self) >= self._most:
            self.refused += 1
            raise PoolError(
                f"the pool is full, and {len(self)} wait already",
                fix=f"ask again in {retry_s} s, or another pool",
                status=429,
                code="queue_full",
                failure="infrastructure",
                retry_s=retry_s,
            )

    def add(self, waiter: Waiter) -> None:
        """Adds a waiter at the end of its run's line."""
        self._runs.setdefault(waiter.run, deque()).append(waiter)

    def remove(self, waiter: Waiter) -> None:
        """Removes a waiter that waits no longer."""
        line = self._runs.get(waiter.run)
        if line is not None and waiter in line:
            line.remove(waiter)
            if not line:
                del self._runs[waiter.run]

    def next(self, fits: Callable[[Waiter], bool]) -> Waiter | None:
        """Removes the first waiter of the run whose turn it is; that run is then last. None if no waiter fits."""
        for run, line in self._runs.items():
            if fits(line[0]):
                waiter = line.popleft()
                self._runs.move_to_end(run)
                if not line:
                    del self._runs[run]
                return waiter
        return None

    def waiting(self) -> dict[str, int]:
        """The number of waiters by run."""
        return {run: len(line) for run, line in self._runs.items()}

    def refuse_all(self, problem: PoolError) -> None:
        """Sends everybody away."""
        for line in self._runs.values():
            for waiter in line:
                if not waiter.granted.done():
                    waiter.granted.set_exception(problem)
        self._runs.clear()
