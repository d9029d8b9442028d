"""The environment of tasks with tools that return values; an answer ends the task."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from openclaw_rl.core.message import Json, Tool, json_list
from openclaw_rl.envs.box.sandbox import Boxes, Sandbox
from openclaw_rl.envs.open import EnvOptions
from openclaw_rl.envs.task import (
    Action,
    Env,
    Failure,
    Info,
    Observation,
    Part,
    PartKind,
    Score,
    StepResult,
    Task,
    failed,
    over,
    unscored,
)
from openclaw_rl.envs.tasks.source import Attempt, TaskSource, spec_of
from openclaw_rl.envs.tools.interpreter import Interpreter
from openclaw_rl.envs.tools.mcp import McpTools
from openclaw_rl.envs.tools.mcp_servers import McpServer, servers_of
from openclaw_rl.envs.tools.provider import CallResult, CallStatus, ToolProvider, refused, tool_of
from openclaw_rl.errors import BoxError, ConfigError, TaskError

ANSWER_FILE = "/logs/agent/answer.txt"
ANSWER = tool_of("answer", "Give the final answer. The task ends.", "value", "The answer alone.")


def open_kind(source: TaskSource, boxes: Boxes | None, options: EnvOptions) -> Env:
    """The environment of tool-call tasks."""
    if boxes is None:
        raise ConfigError("the Python of tool-call tasks runs in boxes", fix="open them with open_boxes()")
    return ToolEnv(source, boxes, options)


@dataclass(slots=True)
class _ToolEpisode:
    """The state of one episode."""

    task: Task
    box: Sandbox
    providers: list[ToolProvider] = field(default_factory=list)
    used_s: float = 0.0  # spent in calls
    answer: str | None = None
    ended: Info | None = None  # set when it is over

    @property
    def tools(self) -> tuple[Tool, ...]:
        return (*(tool for provider in self.providers for tool in provider.tools), ANSWER)


class ToolEnv:
    """Implements Env. An observation has one part for each action of the step, in order.

    Failures are in Info.failure and never raised: `infrastructure` for a box that failed, `environment` for a
    task that cannot be used, `agent` for a call that cannot be done. The first two end the episode. The task's
    `agent_s` is measured in calls. `preload` names modules that the interpreter imports while the agent thinks;
    `servers` are MCP servers for every task, besides those that a task names.
    """

    def __init__(
        self,
        source: TaskSource,
        boxes: Boxes,
        options: EnvOptions,
        *,
        preload: Sequence[str] = (),
        servers: Sequence[McpServer] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._boxes = boxes
        self._options = options
        self._preload = tuple(preload)
        self._servers = tuple(servers)
        self._clock = clock
        self._episode: _ToolEpisode | None = None
        self._failed = Info(failure=Failure.INFRASTRUCTURE, reason="no task was begun: call reset first")

    async def reset(self, task: Task, *, seed: int = 0) -> Observation:
        """The instruction. These tasks are not random: `seed` has no effect."""
        await self.aclose()
        began = self._clock()
        try:
            box = await self._source.start(task, self._boxes) or await self._boxes.create(spec_of(task.resources))
            self._episode = _ToolEpisode(task, box)
            boxed = self._clock()
            await self._provide(self._episode)
        except (TaskError, BoxError) as problem:
            await self.aclose()
            self._failed = failed(problem)
            return Observation((), info=self._failed)
        timings = {"start": boxed - began, "tools": self._clock() - boxed}
        return Observation((_text(task.instruction),), self._episode.tools, Info(timings))

    async def _provide(self, episode: _ToolEpisode) -> None:
        """Starts the task's tools: Python, unless it names MCP servers without `python`."""
        most = self._options.output_characters
        servers = (*servers_of(episode.task), *self._servers)
        if not servers or "python" in names_in(episode.task, "tools"):
            preload = (*self._preload, *names_in(episode.task, "preload"))
            python = Interpreter(episode.box, preload=preload, most_characters=most)
            episode.providers.append(python)
            await python.start()
        for server in servers:
            tools = McpTools(server, episode.box, most_characters=most)
            episode.providers.append(tools)
            await tools.start()
        names = Counter(tool.name for tool in episode.tools)
        if twice := [name for name, count in names.items() if count > 1]:
            raise TaskError(f"the tools {', '.join(twice)} are offered twice", fix="leave a server out")

    async def step(self, actions: Sequence[Action]) -> StepResult:
        """The results of the calls, in order; calls after an answer or after the time limit are not done."""
        episode = self._episode
        if episode is None or episode.ended is not None:
            return over(self._failed if episode is None or episode.ended is None else episode.ended)
        began = self._clock()
        calls: list[CallResult] = []
        try:
            for number, action in enumerate(actions):
                calls.append(await self._one(episode, action, number))
                episode.used_s += calls[-1].duration_s
        except (TaskError, BoxError) as problem:
            episode.ended = failed(problem, {"calls": self._clock() - began})
            return over(episode.ended)
        info = _info(calls, self._clock() - began)
        is_answered, is_late = episode.answer is not None, self._left_s(episode) <= 0
        if is_answered or is_late:
            episode.ended = info
        parts = [_text(call.text) for call in calls]
        if is_late and not is_answered:
            parts.append(_text("[the time for this task is used up]"))
        observation = Observation(tuple(parts), episode.tools, info)
        return StepResult(observation, done=is_answered, truncated=is_late and not is_answered, info=info)

    async def _one(self, episode: _ToolEpisode, action: Action, number: int) -> CallResult:
        if episode.answer is not None or self._left_s(episode) <= 0:
            return CallResult("[not done: the episode was over]")
        if number >= self._options.most_actions:
            return refused(f"at most {self._options.most_actions} calls are done in one step")
        if action.tool == ANSWER.name:
            episode.answer = as_text(action.arguments.get("value"))
            return refused("answer needs `value`") if episode.answer is None else CallResult("[answered]")
        for provider in episode.providers:
            if action.tool in (tool.name for tool in provider.tools):
                return await provider.call(action, timeout_s=min(self._options.command_s, self._left_s(episode)))
        names = ", ".join(tool.name for tool in episode.tools)
        return refused(f"there is no tool {action.tool[:100]!r}; there are: {names}")

    def _left_s(self, episode: _ToolEpisode) -> float:
        return episode.task.limits.agent_s - episode.used_s

    async def evaluate(self) -> Score:
        """The verdict on the answer (a missing one counts as empty), and on a fork of the box if tests judge that."""
        episode, began = self._episode, self._clock()
        ended = self._failed if episode is None else episode.ended
        if ended is not None and ended.is_broken:
            return unscored(ended)
        assert episode is not None
        try:
            if episode.answer is not None:  # tests that judge the box read it there
                await episode.box.write(ANSWER_FILE, episode.answer.encode("utf-8", "replace"))
            score = await self._source.judge(episode.task, Attempt(episode.box, episode.answer or ""))
        except (TaskError, BoxError) as problem:
            score = unscored(failed(problem))
        return replace(score, duration_s=self._clock() - began)

    async def aclose(self) -> None:
        """Ends the tools and removes the box."""
        episode, self._episode = self._episode, None
        self._failed = Info(failure=Failure.INFRASTRUCTURE, reason="the environment was closed")
        if episode is None:
            return
        async with contextlib.AsyncExitStack() as closing:
            closing.push_async_callback(episode.box.aclose)
            for provider in episode.providers:
                closing.push_async_callback(provider.aclose)


def names_in(task: Task, key: str) -> tuple[str, ...]:
    """The names that a task's metadata lists: `tools = ["python"]` besides servers, `preload = ["sympy"]`."""
    return tuple(str(name) for name in json_list(task.metadata.get(key)))


def _text(text: str) -> Part:
    return Part(PartKind.TEXT, text)


def _info(calls: Sequence[CallResult], duration_s: float) -> Info:
    """The information on a step; a call that could not be done is the agent's failure, and the episode continues."""
    facts: list[Json] = [{"status": call.status.value, "seconds": round(call.duration_s, 4)} for call in calls]
    wrong = [call.text for call in calls if call.status is CallStatus.REFUSED]
    failure = Failure.AGENT if wrong else None
    return Info({"calls": duration_s}, failure, wrong[0] if wrong else "", {"calls": facts})


def as_text(value: Json) -> str | None:
    """An answer as text: numbers and lists as JSON; None if there is none."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    return value if isinstance(value, str) else json.dumps(value)
