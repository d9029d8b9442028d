"""The stages behind the server, as one: they run together, and can be stopped for a while and begun again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from openclaw_rl.core.stage import Stage
from openclaw_rl.runtime.upkeep import StageSupervisor


@dataclass(slots=True)
class Learning:
    """Runs the stages. What one was doing when it is stopped stands in the store, as after a crash."""

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
        """No stage holds anything in memory of any turn, as after a restart; only while they are stopped."""
        for stage in self.stages:
            stage.let_go()

    @asynccontextmanager
    async def stopped(self) -> AsyncIterator[None]:
        """Within it no stage runs: each is cancelled where it stands, and begun again afterwards."""
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
