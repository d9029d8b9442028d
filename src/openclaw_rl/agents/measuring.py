"""Every task attempted n times, several at once: to inspect, to record, or to measure a version."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from openclaw_rl.agents.attempts import AttemptJob, Attempts
from openclaw_rl.agents.entries import TaskEntry
from openclaw_rl.agents.rollout import RolloutResult


async def attempt_all(
    attempts: Attempts,
    entries: Sequence[TaskEntry],
    *,
    run: str,
    times: int,
    at_once: int,
    seed: int = 0,
    tell: Callable[[RolloutResult], None] = lambda result: None,
) -> dict[str, list[RolloutResult]]:
    """The last result of each attempt, by task; `tell` gets each, lost ones too. Raises as `Rollout.run`."""
    jobs = deque(
        AttemptJob(entry, f"{run}.{number}", times, place, seed)
        for number, entry in enumerate(entries)
        for place in range(times)
    )
    found: dict[str, list[RolloutResult]] = {entry.name: [] for entry in entries}

    async def work() -> None:
        while jobs:
            job = jobs.popleft()
            results = await attempts.run(job)
            for result in results:
                tell(result)
            found[job.entry.name].append(results[-1])

    async with asyncio.TaskGroup() as workers:
        for _ in range(min(at_once, len(jobs))):
            workers.create_task(work())
    return found
