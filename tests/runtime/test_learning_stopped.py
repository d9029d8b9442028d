"""The stages behind the server are stopped for a while and begin again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from openclaw_rl.core.to_end import to_end
from openclaw_rl.runtime.learning import Learning


@dataclass
class Stage:
    """Runs until it is cancelled, and takes a moment to end."""

    name: str = "one"
    begun: list[str] = field(default_factory=list)
    running: int = 0
    is_busy: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        self.begun.append("run")
        self.running += 1
        self.is_busy.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.running -= 1
            self.is_busy.clear()


async def test_no_stage_runs_while_they_are_stopped_and_all_begin_again() -> None:
    one, other = Stage(), Stage()
    learning = Learning((one, other))
    running = asyncio.ensure_future(learning.run())
    for times in (1, 2):
        await one.is_busy.wait()
        await other.is_busy.wait()
        async with learning.stopped():
            assert (one.running, other.running) == (0, 0)
        assert len(one.begun) == len(other.begun) == times
    await one.is_busy.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert (one.running, other.running) == (0, 0)


async def test_stages_that_nobody_runs_are_stopped_at_once_and_not_begun() -> None:
    stage = Stage()
    async with Learning((stage,)).stopped():
        pass
    assert stage.begun == []


async def test_work_is_finished_where_whoever_waits_is_cancelled() -> None:
    go, done = asyncio.Event(), list[str]()

    async def work() -> str:
        await go.wait()
        done.append("done")
        return "what it gave"

    waiting = asyncio.ensure_future(to_end(work()))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    assert not waiting.done()
    go.set()
    await asyncio.gather(waiting, return_exceptions=True)
    assert waiting.cancelled()
    assert done == ["done"]
    assert await to_end(work()) == "what it gave"
