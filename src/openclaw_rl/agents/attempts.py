"""Attempts of a group: each in its own environment, and repeated if it was lost."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from dataclasses import dataclass, field, replace

from openclaw_rl.agents.endpoint import PolicyEndpoint
from openclaw_rl.agents.entries import EnvOpener, TaskEntry
from openclaw_rl.agents.rollout import Rollout, RolloutBudget, RolloutCounts, RolloutResult, RolloutSampling
from openclaw_rl.core.episode import FailureClass
from openclaw_rl.envs.task import Env
from openclaw_rl.errors import BoxError, OpenClawRLError, TaskError

log = logging.getLogger(__name__)
FIRST_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True)
class AttemptJob:
    """One place in a group. `place` counts from 0; `seed` is the environment's."""

    entry: TaskEntry
    group: str
    size: int
    place: int
    seed: int = 0


@dataclass(slots=True)
class Attempts:
    """Runs jobs. An episode that the infrastructure lost is attempted again, up to `retries` times.

    With a `draw`, sampling seeds are derived from it, so that a run can be repeated."""

    endpoint: PolicyEndpoint
    open_env: EnvOpener
    environment: str
    budget: RolloutBudget = field(default_factory=RolloutBudget)
    sampling: RolloutSampling = field(default_factory=RolloutSampling)
    retries: int = 2
    draw: int | None = None
    is_side: bool = False
    holds_ends: bool = False
    headers: dict[str, str] = field(default_factory=dict)

    async def run(self, job: AttemptJob) -> list[RolloutResult]:
        """Each attempt's result; the last one is graded, or finally lost. Raises as `Rollout.run`."""
        pause_s = FIRST_PAUSE_S
        results: list[RolloutResult] = []
        for number in range(self.retries + 1):
            result = await self._attempt(job, number)
            results.append(result)
            if result.failure is not FailureClass.INFRASTRUCTURE:
                break
            log.warning("episode %s was lost: %s", result.episode, result.why)
            if number < self.retries:
                await asyncio.sleep(pause_s)
                pause_s *= 2
        return results

    async def _attempt(self, job: AttemptJob, number: int) -> RolloutResult:
        name = f"{job.group}.{job.place}" + (f".{number}" if number else "")
        try:
            env = await self.open_env(job.entry)
        except (BoxError, TaskError, OSError) as problem:
            is_task = isinstance(problem, TaskError)
            failure = FailureClass.ENVIRONMENT if is_task else FailureClass.INFRASTRUCTURE
            return RolloutResult(name, job.entry.name, None, False, failure, str(problem), RolloutCounts(), 0.0)
        draw = None if self.draw is None else _seed(f"{self.draw} {job.entry.name} {job.seed} {job.place}")
        rollout = Rollout(
            self.endpoint,
            env,
            job.entry.task,
            name,
            seed=job.seed,
            group=job.group,
            group_size=job.size,
            task_name=job.entry.name,
            environment=self.environment,
            closes_group=number == self.retries,
            budget=self.budget,
            sampling=replace(self.sampling, seed=draw),
            headers=self.headers,
            is_side=self.is_side,
            holds_end=self.holds_ends,
        )
        try:
            return await rollout.run()
        finally:
            await _closed(env, name)


def _seed(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")


async def _closed(env: Env, name: str) -> None:
    """Closes the environment; a failure does not affect the result."""
    try:
        await env.aclose()
    except (OpenClawRLError, OSError) as problem:
        log.warning("the environment of episode %s did not close: %s", name, problem)
