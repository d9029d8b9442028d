"""The stages that run while the server serves, as a group: they can be stopped for a while and restarted.

A stage that breaks is restarted: its work is in the store, and serving continues meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from openclaw_rl.core.stage import Stage
from openclaw_rl.errors import OpenClawRLError, innermost

log = logging.getLogger(__name__)
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0
LASTED_S = 600.0  # a stage that has run this long since it broke counts as recovered


@dataclass(frozen=True, slots=True)
class StageFailure:
    """When a stage last broke (by the clock), how often in a row, and why."""

    at_s: float
    times: int
    why: str


@dataclass(slots=True)
class StageSupervisor:
    """Runs stages, and restarts those that break."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _breaks: dict[str, StageFailure] = field(default_factory=dict)

    async def keep(self, stage: str, run: Callable[[], Awaitable[None]]) -> None:
        """Runs a stage until it ends or this is cancelled; restarts it if it breaks, after growing pauses."""
        while True:
            try:
                await run()
                return
            except Exception as problem:  # the edge of a stage
                broke = self._note(stage, problem)
                pause_s = min(FIRST_PAUSE_S * 2 ** min(broke.times - 1, 30), LONGEST_PAUSE_S)
                if isinstance(innermost(problem), OpenClawRLError):  # foreseen, such as a full disk
                    log.error("stage=%s stopped and is begun again in %g s: %s", stage, pause_s, broke.why)
                else:
                    log.error("stage=%s broke and is begun again in %g s", stage, pause_s, exc_info=problem)
            await self.sleep(pause_s)

    @property
    def broken(self) -> dict[str, str]:
        """Why stages broke that have not yet recovered, by name."""
        now_s = self.clock()
        return {
            stage: f"it broke {'once' if broke.times == 1 else f'{broke.times} times'}, last by {broke.why}"
            for stage, broke in self._breaks.items()
            if now_s - broke.at_s < LASTED_S
        }

    def _note(self, stage: str, problem: Exception) -> StageFailure:
        cause = innermost(problem)
        now_s, before = self.clock(), self._breaks.get(stage)
        is_anew = before is None or now_s - before.at_s >= LASTED_S
        times = 1 if before is None or is_anew else before.times + 1
        kind = "" if isinstance(cause, OpenClawRLError) else f"{type(cause).__name__}: "
        noted = self._breaks[stage] = StageFailure(now_s, times, f"{kind}{cause}"[:300])
        return noted


@dataclass(slots=True)
class Learning:
    """Runs the stages. The work of a stopped stage is in the store, as after a crash."""

    stages: Sequence[Stage]
    upkeep: StageSupervisor = field(default_factory=StageSupervisor)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _may_run: asyncio.Event = field(default_factory=asyncio.Event)
    _must_stop: asyncio.Event = field(default_factory=asyncio.Event)
    _has_stopped: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._may_run.set()
        self._has_stopped.set()

    async def run(self) -> None:
        """Runs the stages until cancelled."""
        while True:
            await self._may_run.wait()
            await self._until_stopped()

    def let_go(self) -> None:
        """Clears the stages' memory of turns, as after a restart; only while they are stopped."""
        for stage in self.stages:
            stage.let_go()

    @asynccontextmanager
    async def stopped(self) -> AsyncIterator[None]:
        """No stage runs within this context: each is cancelled at any point, and restarted afterwards."""
        async with self._lock:
            self._may_run.clear()
            self._must_stop.set()
            try:
                await self._has_stopped.wait()
                yield
            finally:
                self._must_stop.clear()
                self._may_run.set()

    async def _until_stopped(self) -> None:
        self._has_stopped.clear()
        try:
            async with asyncio.TaskGroup() as group:
                running = [group.create_task(self.upkeep.keep(stage.name, stage.run)) for stage in self.stages]
                await self._must_stop.wait()
                for task in running:
                    task.cancel()
        finally:
            self._has_stopped.set()
