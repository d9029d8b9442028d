"""One attempt at one task: asks the policy turn by turn over the chat API, does its calls, and has the end judged.

The history only grows at its end and replies are sent back unchanged, so that each prompt continues the one before.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import aiohttp

from openclaw_rl.agents.actions import AgentCall, calls_of, first_messages, kind_of, picture_of, result_messages
from openclaw_rl.agents.endpoint import TOO_LONG, ChatAsk, PolicyEndpoint, PolicyReply
from openclaw_rl.core.episode import FailureClass
from openclaw_rl.core.message import Json, Tool
from openclaw_rl.envs.task import Action, Env, Failure, Info, Observation, Score, StepResult, Task
from openclaw_rl.errors import BoxError, ConfigError, EngineError, RequestError, TaskError

log = logging.getLogger(__name__)
T = TypeVar("T")
CANCEL_S = 5.0  # to report a cancelled episode as lost
JUDGE_GRACE_S = 60.0  # beyond the task's own limit on its judging
CLASSES = {
    Failure.AGENT: FailureClass.AGENT,
    Failure.ENVIRONMENT: FailureClass.ENVIRONMENT,
    Failure.INFRASTRUCTURE: FailureClass.INFRASTRUCTURE,
}


@dataclass(frozen=True, slots=True)
class RolloutBudget:
    """What one episode may use. One out of budget is judged as it stands, and a failure then is the agent's own.

    With `needs_end` it is not judged then and its outcome is 0: success requires that the agent ends it.
    `env_s` counts the environment's time only, since the load of the policy's server is not the agent's fault. An
    episode that takes `wall_s` altogether is lost, as a failure of the infrastructure.
    """

    turns: int = 20
    tokens: int = 8192  # sampled in the whole episode
    reply_tokens: int = 1024
    calls: int = 8  # of one reply; further ones are not done
    unread: int = 3  # replies in a row without a readable call
    env_s: float = 600.0
    wall_s: float = 3600.0
    needs_end: bool = False


@dataclass(frozen=True, slots=True)
class RolloutSampling:
    """How replies are drawn. With a `seed` each step has its own, derived seed."""

    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None

    def of_step(self, step: int) -> int | None:
        """The seed of a step's reply."""
        return None if self.seed is None else (self.seed * 1_000_003 + step) % (1 << 53)


@dataclass(slots=True)
class RolloutCounts:
    """The costs of an episode. `versions` are those that sampled its steps, in order."""

    turns: int = 0
    prompt_tokens: int = 0
    tokens: int = 0  # sampled
    unread: int = 0  # replies without a readable call
    cut: int = 0  # replies that ran out of tokens
    policy_s: float = 0.0  # waiting for replies
    start_s: float = 0.0  # until the environment was ready
    env_s: float = 0.0  # carrying out calls
    judge_s: float = 0.0
    versions: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RolloutResult:
    """How an episode ended. The outcome is None if it was not graded; `is_success` says that the task is solved.

    `has_ended` says that the agent or the environment ended it, not a budget. One that `is_held` was not ended yet at
    the server: the caller does that.
    """

    episode: str
    task: str
    outcome: float | None
    is_success: bool
    failure: FailureClass
    why: str
    counts: RolloutCounts
    duration_s: float
    is_held: bool = False
    has_ended: bool = False

    @property
    def is_graded(self) -> bool:
        """Whether it says something about the policy."""
        return self.failure.is_graded and self.outcome is not None


class _LostEpisodeError(Exception):
    """The episode cannot be graded."""

    def __init__(self, failure: FailureClass, why: str) -> None:
        super().__init__(why)
        self.failure = failure


@dataclass(slots=True)
class Rollout:
    """One episode. `name` is its id; `seed` the environment's, the same for all of a group.

    The server knows the task by `task_name`, else by its id. With `closes_group` it is not replaced if it is lost,
    and a broken task always closes its group. An episode that `is_side` is neither recorded nor learned from: for
    measuring. With `holds_end` a graded episode stays open for the caller to end. Run it once.
    """

    endpoint: PolicyEndpoint
    env: Env
    task: Task
    name: str
    seed: int = 0
    group: str | None = None
    group_size: int | None = None
    task_name: str = ""
    environment: str = ""
    closes_group: bool = False
    budget: RolloutBudget = field(default_factory=RolloutBudget)
    sampling: RolloutSampling = field(default_factory=RolloutSampling)
    headers: dict[str, str] = field(default_factory=dict)
    is_side: bool = False
    holds_end: bool = False
    clock: Callable[[], float] = time.monotonic
    counts: RolloutCounts = field(default_factory=RolloutCounts)
    _messages: list[Json] = field(default_factory=list, init=False)
    _tools: Sequence[Tool] = field(default=(), init=False)
    _kind: str = field(default="text", init=False)
    _has_begun: bool = field(default=False, init=False)
    _picture: bytes = field(default=b"", init=False)  # the latest screen
    _keeps_pictures: bool = field(default=True, init=False)
    _unread_in_a_row: int = field(default=0, init=False)

    async def run(self) -> RolloutResult:
        """Attempts the task and ends the episode; a failure is reported by its class.

        Raises RequestError and ConfigError if the server refuses, EngineError if it is gone for good. Before it
        raises or is cancelled, the episode is ended as a failure of the infrastructure.
        """
        began_s = self.clock()
        score: Score | None = None
        failure, why, has_ended = FailureClass.NONE, "", False
        try:
            async with asyncio.timeout(self.budget.wall_s):
                why = await self._attempt()
                has_ended = not why
                score = await self._judged() if has_ended or not self.budget.needs_end else Score(0.0)
        except _LostEpisodeError as lost:
            failure, why = lost.failure, str(lost)
        except TimeoutError:
            failure, why = FailureClass.INFRASTRUCTURE, f"it took more than {self.budget.wall_s:g} s"
        except (asyncio.CancelledError, RequestError, ConfigError, EngineError) as problem:
            await self._give_up(str(problem) or "the rollout was cancelled")
            raise
        outcome = None
        if score is not None:
            outcome, failure = score.reward, _class_of(score, out_of_budget=bool(why))
            why = "; ".join(part for part in (why, score.details) if part)
        is_held = self.holds_end and failure.is_graded and self._has_begun
        if not is_held:
            await self._end(outcome, failure, why)
        is_success = score is not None and score.is_success and failure.is_graded
        taken_s = self.clock() - began_s
        name = self.task_name or self.task.id
        return RolloutResult(
            self.name, name, outcome, is_success, failure, why, self.counts, taken_s, is_held, has_ended
        )

    async def _attempt(self) -> str:
        """Takes steps until the environment says it is over; else returns which budget ran out."""
        if not self.is_side:
            self.name = await self.endpoint.begin(
                self.name,
                task=self.task_name or self.task.id,
                group=self.group,
                group_size=self.group_size,
                seed=self.seed,
                environment=self.environment,
            )
            self._has_begun = True
        began_s = self.clock()
        seen = await self._env(self.env.reset(self.task, seed=self.seed))
        self.counts.start_s = self.clock() - began_s
        _check(seen.info)
        self._messages, self._tools, self._kind = first_messages(seen), seen.tools, kind_of(seen)
        self._picture = picture_of(seen)
        while not (why := self._out_of()):
            try:
                reply = await self._ask()
            except RequestError as refusal:
                if refusal.code == TOO_LONG:
                    return "out of context"
                if refusal.status in (404, 409) and self._has_begun:
                    raise _LostEpisodeError(FailureClass.INFRASTRUCTURE, refusal.problem) from refusal
                raise
            await self._keep_picture(self.counts.turns - 1)
            if await self._act(reply):
                return ""
        return why

    def _out_of(self) -> str:
        counts, budget = self.counts, self.budget
        if counts.turns >= budget.turns:
            return f"out of turns ({budget.turns})"
        if counts.tokens >= budget.tokens:
            return f"out of tokens ({budget.tokens})"
        if counts.env_s >= budget.env_s:
            return f"out of time ({budget.env_s:g} s)"
        if self._unread_in_a_row >= budget.unread:
            return f"{budget.unread} replies in a row had no readable call"
        return ""

    async def _ask(self) -> PolicyReply:
        budget, step = self.budget, self.counts.turns
        more = {"X-Turn-Type": "side", "X-Session-Id": self.name} if self.is_side else {"X-Episode-Id": self.name}
        if not self.is_side:
            more |= {"X-Episode-Step": str(step), "X-Episode-Observation": self._kind}
        ask = ChatAsk(
            self._messages,
            self._tools,
            max_tokens=min(budget.reply_tokens, budget.tokens - self.counts.tokens),
            temperature=self.sampling.temperature,
            top_p=self.sampling.top_p,
            seed=self.sampling.of_step(step),
            headers={**self.headers, **more},
        )
        began_s = self.clock()
        reply = await self.endpoint.chat(ask)
        counts = self.counts
        counts.policy_s += self.clock() - began_s
        counts.turns += 1
        counts.prompt_tokens += reply.prompt_tokens
        counts.tokens += max(1, reply.completion_tokens)
        counts.versions.append(reply.version)
        self._messages.append(dict(reply.body))
        return reply

    async def _act(self, reply: PolicyReply) -> bool:
        """Does what a reply calls for, one call after the other; True if the episode is over then."""
        step = self.counts.turns - 1
        calls = calls_of(reply.body, self._tools)
        self.counts.cut += reply.is_cut
        if all(call.action is None for call in calls):
            self.counts.unread += 1
            self._unread_in_a_row += 1
        else:
            self._unread_in_a_row = 0
        rewards: list[float] = []
        shown: list[str] = []
        is_over = False
        for index, call in enumerate(calls):
            said: Observation | str
            if is_over:
                said = "This call was not done: the episode was over."
            elif call.action is None:
                said = _cut_words(call, reply)
            elif index >= self.budget.calls:
                said = f"This call was not done: one reply may make {self.budget.calls} calls."
            else:
                result = await self._done(call.action)
                if result is None:
                    said = f"This call was ended: the episode is out of time ({self.budget.env_s:g} s)."
                else:
                    said, is_over = result.observation, result.done or result.truncated
                    rewards += [] if result.reward is None else [result.reward]
                    self._tools = said.tools or self._tools
                    self._kind = kind_of(said)
                    self._picture = picture_of(said)
            self._messages += result_messages(call, said)
            shown.append(said if isinstance(said, str) else said.text)
        is_last = is_over or bool(self._out_of())
        await self._report(step, rewards, shown, is_last=is_last)
        if is_last:
            await self._keep_picture(step, is_after=True)
        return is_over

    async def _keep_picture(self, step: int, *, is_after: bool = False) -> None:
        """Sends the screen for the record. After a refusal the episode sends no more pictures; nothing else changes."""
        if not self._picture or not self._has_begun or not self._keeps_pictures:
            return
        problem = await self.endpoint.send_picture(self.name, step, self._picture, is_after=is_after)
        if problem:
            self._keeps_pictures = False
            log.warning("no pictures from step %d of %s on: %s", step, self.name, problem)

    async def _done(self, action: Action) -> StepResult | None:
        """The result of an action; None if the episode's time ran out over it."""
        began_s = self.clock()
        left_s = max(0.0, self.budget.env_s - self.counts.env_s)
        try:
            result = await self._env(self.env.step([action]), within_s=left_s)
        except TimeoutError:
            self.counts.env_s = self.budget.env_s
            return None
        self.counts.env_s += self.clock() - began_s
        _check(result.info)
        return result

    async def _report(self, step: int, rewards: Sequence[float], shown: Sequence[str], *, is_last: bool) -> None:
        """The step's own score, the mean of its calls', and after the last step its observation."""
        score = sum(rewards) / len(rewards) if rewards else None
        words = "\n".join(text for text in shown if text) if is_last else ""
        if self.is_side or (score is None and not words):
            return
        try:
            await self.endpoint.report_step(self.name, step, score=score, observation=words)
        except RequestError as refusal:
            if refusal.status != 404:
                raise
            log.info("no score for step %d of %s: %s", step, self.name, refusal.problem)  # a turn that teaches nothing

    async def _judged(self) -> Score:
        began_s, limit_s = self.clock(), self.task.limits.judge_s + JUDGE_GRACE_S
        try:
            return await self._env(self.env.evaluate(), within_s=limit_s)
        except TimeoutError as problem:
            raise _LostEpisodeError(FailureClass.ENVIRONMENT, f"no verdict within {limit_s:g} s") from problem
        finally:
            self.counts.judge_s = self.clock() - began_s

    async def _env(self, work: Awaitable[T], *, within_s: float | None = None) -> T:
        """The environment's result. Raises _LostEpisodeError with who is at fault, TimeoutError after `within_s`."""
        limit = asyncio.timeout(within_s)
        try:
            async with limit:
                return await work
        except TaskError as problem:
            raise _LostEpisodeError(FailureClass.ENVIRONMENT, str(problem)) from problem
        except (BoxError, OSError, aiohttp.ClientError) as problem:
            if limit.expired():
                raise
            words = f"{type(problem).__name__}: {problem}"
            raise _LostEpisodeError(FailureClass.INFRASTRUCTURE, words) from problem
        except Exception as problem:  # the edge of a rollout: any other error counts as the environment's
            log.exception("the environment failed in episode %s", self.name)
            words = f"{type(problem).__name__}: {problem}"
            raise _LostEpisodeError(FailureClass.ENVIRONMENT, words) from problem

    async def _end(self, outcome: float | None, failure: FailureClass, why: str) -> None:
        if self._has_begun:
            is_last = failure is FailureClass.ENVIRONMENT or (self.closes_group and not failure.is_graded)
            await self.endpoint.end(self.name, outcome, failure, why[:2000], closes_group=is_last)

    async def _give_up(self, why: str) -> None:
        """Reports the episode as lost; a server that does not answer soon finds out by itself."""
        try:
            async with asyncio.timeout(CANCEL_S):
                await self._end(None, FailureClass.INFRASTRUCTURE, why)
        except (TimeoutError, EngineError, RequestError) as problem:
            log.warning("episode %s stays open: %s", self.name, problem)


def _check(info: Info) -> None:
    if info.failure in (Failure.ENVIRONMENT, Failure.INFRASTRUCTURE):
        raise _LostEpisodeError(CLASSES[info.failure], info.reason or "the environment reports a failure")


def _class_of(score: Score, *, out_of_budget: bool) -> FailureClass:
    if score.failure is not None:
        return CLASSES[score.failure]
    return FailureClass.AGENT if out_of_budget and not score.is_success else FailureClass.NONE


def _cut_words(call: AgentCall, reply: PolicyReply) -> str:
    cut = f"Your reply was cut off after {reply.completion_tokens} tokens. " if reply.is_cut else ""
    return cut + call.problem
