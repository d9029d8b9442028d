"""An environment of any kind that runs in a pool: the same calls, results and failure classes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from openclaw_rl.envs.pool.boxes import PoolBox
from openclaw_rl.envs.pool.client import PoolClient
from openclaw_rl.envs.pool.remote import HeldLease
from openclaw_rl.envs.pool.wire import ActionBody, CallBody, Granted, PoolLeaseBody, observation_of, step_of
from openclaw_rl.envs.task import Action, Failure, Info, Observation, Score, StepResult, Task, over
from openclaw_rl.errors import BoxError, PoolError

ATTEMPTS = 3  # of a reset: no action was done yet
MARGIN_S = 60.0
STEP_S = 600.0


class PoolEnv:
    """Implements Env. One lease per episode; failures are in Info.failure and never raised.

    If its pool is lost, an episode ends as a failure of the infrastructure. The next `reset` is a
    fresh attempt, on another pool if there is one.
    """

    def __init__(
        self,
        client: PoolClient,
        kind: str,
        *,
        source: str | None = None,
        step_s: float = STEP_S,
        records: bool = False,
    ) -> None:
        self._client = client
        self._kind = kind
        self._source = source
        self._step_s = step_s
        self._records = records
        self._task: Task | None = None
        self._lease: HeldLease | None = None
        self._failed: Info | None = Info(failure=Failure.INFRASTRUCTURE, reason="no task was begun: call reset first")
        self.answer = ""  # for tasks of the kind `box` that are judged by an answer in words

    async def reset(self, task: Task, *, seed: int = 0) -> Observation:
        """The first observation, with a new lease, on another pool if necessary."""
        began, info = time.monotonic(), Info()
        for _ in range(ATTEMPTS):
            await self.aclose()
            try:
                observation = await self._begun(task, seed)
            except PoolError as problem:
                info = _failed(problem)
                if problem.failure != Failure.INFRASTRUCTURE:
                    break
            else:
                info = observation.info
                if info.failure is not Failure.INFRASTRUCTURE:
                    break
            self._client.counts["resets_again"] += 1
        else:
            observation = Observation((), info=info)
        if info.is_broken:
            await self.aclose()
            self._failed = info
            return Observation((), info=info)
        self._failed = None
        timings = {**info.timings_s, "pool": time.monotonic() - began}
        return replace(observation, info=replace(info, timings_s=timings))

    async def _begun(self, task: Task, seed: int) -> Observation:
        wanted = PoolLeaseBody(self._kind, task=task.id, source=self._source, records=self._records)
        self._lease = await self._client.lease(wanted)
        self._task = task
        within_s = task.limits.build_s + MARGIN_S
        return observation_of(await self._call("reset", CallBody(seed=seed, deadline_s=within_s), within_s))

    async def step(self, actions: Sequence[Action]) -> StepResult:
        """The result of the agent's calls."""
        if self._failed is not None:
            return over(self._failed)
        body = CallBody(actions=[ActionBody(one.tool, dict(one.arguments)) for one in actions], deadline_s=self._step_s)
        try:
            result = step_of(await self._call("step", body, self._step_s + MARGIN_S))
        except PoolError as problem:
            self._failed = _failed(problem)
            return over(self._failed)
        if result.info.is_broken:
            self._failed = result.info
        return result

    async def evaluate(self) -> Score:
        """The verdict; without a reward if the episode failed through no fault of the agent."""
        if self._failed is not None:
            return Score(None, details=self._failed.reason, failure=self._failed.failure or Failure.INFRASTRUCTURE)
        assert self._task is not None
        within_s = self._task.limits.judge_s + 2 * MARGIN_S
        try:
            said = await self._call("evaluate", CallBody(answer=self.answer, deadline_s=within_s), within_s + MARGIN_S)
        except PoolError as problem:
            self._failed = _failed(problem)
            return Score(None, details=problem.problem, failure=self._failed.failure)
        try:
            return msgspec.json.decode(said, type=Score)
        except msgspec.ValidationError as problem:
            what = f"the environment gave a score that is not one: {problem}"
            return Score(None, details=what, failure=Failure.ENVIRONMENT)

    async def fork(self) -> PoolEnv:
        """A fork of the episode. PoolError if the kind cannot fork."""
        granted = msgspec.json.decode(await self._call("fork", CallBody(), self._step_s), type=Granted)
        other = PoolEnv(self._client, self._kind, source=self._source, step_s=self._step_s, records=self._records)
        other._lease = self._client.adopt(HeldLease(self._held().server, granted))
        other._task, other._failed = self._task, None
        return other

    @property
    def box(self) -> PoolBox:
        """The episode's box, for another agent's harness. BoxError if no episode is open."""
        return PoolBox(self._client, self._held())

    async def _call(self, name: str, body: CallBody, within_s: float) -> bytes:
        lease = self._held()
        return await lease.server.operate(f"{lease.path}/{name}", body, token=lease.granted.token, within_s=within_s)

    def _held(self) -> HeldLease:
        if self._lease is None:
            raise BoxError("no episode is open", fix="call reset first")
        return self._lease

    async def aclose(self) -> None:
        """Closes the lease."""
        if self._lease is not None:
            lease, self._lease = self._lease, None
            self._failed = Info(failure=Failure.INFRASTRUCTURE, reason="the environment was closed")
            await self._client.give_back(lease)


def _failed(problem: PoolError) -> Info:
    return Info(failure=Failure(problem.failure or Failure.INFRASTRUCTURE), reason=problem.problem)
