"""The environment of tasks in a shell: a box with a bash, and a verdict on a fork of the box."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from openclaw_rl.core.message import Json, Tool
from openclaw_rl.envs.box.commands import words_of
from openclaw_rl.envs.box.sandbox import Boxes, KilledBy, Sandbox, Shell, ShellResult
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
from openclaw_rl.envs.tasks.source import Attempt, TaskSource
from openclaw_rl.envs.terminal.output import shown
from openclaw_rl.errors import BoxError, ConfigError, TaskError

ALIVE_S = 20.0  # how long a box may take to respond
SUBMIT = Tool("submit", "Say that the task is done. It is judged as it is then.", {"type": "object", "properties": {}})


def open_kind(source: TaskSource, boxes: Boxes | None, options: EnvOptions) -> Env:
    """The environment of terminal tasks."""
    return shell_env(source, boxes, options, tools=(BASH, SUBMIT))


def shell_env(source: TaskSource, boxes: Boxes | None, options: EnvOptions, *, tools: tuple[Tool, ...]) -> ShellEnv:
    """An environment with a shell; ConfigError if there are no boxes."""
    if boxes is None:
        raise ConfigError("tasks that are done in a shell need boxes", fix="open them with open_boxes()")
    return ShellEnv(source, boxes, options, tools=tools)


def bash_tool(description: str) -> Tool:
    """The tool that runs a command."""
    command: dict[str, Json] = {"type": "string", "description": "What to run."}
    return Tool("bash", description, {"type": "object", "properties": {"command": command}, "required": ["command"]})


BASH = bash_tool("Run a command in a persistent bash shell. Folder and variables stay from call to call.")


@dataclass(slots=True)
class _TerminalEpisode:
    """The state of one episode."""

    task: Task
    box: Sandbox
    shell: Shell
    used_s: float = 0.0  # spent in commands
    passed: float = 0.0  # share of the tests that pass, if steps are scored
    ended: Info | None = None  # set when it is over


@dataclass(slots=True)
class _Done:
    """The results of a step's actions so far."""

    texts: list[str] = field(default_factory=list)
    commands: list[Json] = field(default_factory=list)
    refused: str = ""  # why the last invalid call was refused
    is_submitted: bool = False
    is_late: bool = False


class ShellEnv:
    """Implements Env. An observation has one part for each action of the step, in order.

    Failures are in Info.failure and never raised: `infrastructure` for a box that failed, `environment` for a
    task that cannot be used, `agent` for an invalid call. The first two end the episode. The task's `agent_s` is
    measured in commands; the agent's thinking time does not count.
    """

    def __init__(
        self,
        source: TaskSource,
        boxes: Boxes,
        options: EnvOptions,
        *,
        tools: tuple[Tool, ...],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._boxes = boxes
        self._options = options
        self._tools = tools
        self._clock = clock
        self._episode: _TerminalEpisode | None = None
        self._failed = Info(failure=Failure.INFRASTRUCTURE, reason="no task was begun: call reset first")

    async def reset(self, task: Task, *, seed: int = 0) -> Observation:
        """The instruction. Shell tasks are not random: `seed` has no effect."""
        await self.aclose()
        began = self._clock()
        box: Sandbox | None = None
        try:
            box = await self._source.start(task, self._boxes)
            if box is None:
                raise TaskError(f"task {task.id} has no box to work in")
            boxed = self._clock()
            shell = await box.open_shell()
            passed = await self._passed(task, box) if self._options.score_steps else 0.0
        except (TaskError, BoxError) as problem:
            self._failed = failed(problem)
            if box is not None:
                await box.aclose()
            return Observation((), info=self._failed)
        self._episode = _TerminalEpisode(task, box, shell, passed=passed)
        timings = {"start": boxed - began, "shell": self._clock() - boxed}
        return Observation((_text(task.instruction),), self._tools, Info(timings))

    async def step(self, actions: Sequence[Action]) -> StepResult:
        """The results of the calls, in order; calls after `submit` or after the time limit are not done."""
        episode = self._episode
        if episode is None or episode.ended is not None:
            return over(self._failed if episode is None or episode.ended is None else episode.ended)
        began, done = self._clock(), _Done()
        try:
            for number, action in enumerate(actions):
                done.texts.append(await self._one(episode, action, number, done))
            commanded = self._clock()
            gained = await self._gained(episode, done)
        except (TaskError, BoxError) as problem:
            episode.ended = failed(problem, {"commands": self._clock() - began})
            return over(episode.ended)
        facts: dict[str, Json] = {"commands": done.commands}
        failure = Failure.AGENT if done.refused else None
        info = Info({"commands": commanded - began}, failure, done.refused, facts)
        if done.is_submitted or done.is_late:
            episode.ended = replace(info, facts={**facts, "submitted": done.is_submitted})
        observation = Observation(tuple(map(_text, done.texts)), self._tools, info)
        return StepResult(observation, gained, done=done.is_submitted, truncated=done.is_late, info=info)

    async def _gained(self, episode: _TerminalEpisode, done: _Done) -> float | None:
        """The increase of the share of passing tests in this step; None if steps are not scored."""
        if not self._options.score_steps:
            return None
        before = episode.passed
        if done.commands:
            episode.passed = await self._passed(episode.task, episode.box)
        return episode.passed - before

    async def _passed(self, task: Task, box: Sandbox) -> float:
        """The share of the tests that pass, run on a fork as for a verdict, so the agent does not see them."""
        score = await self._source.judge(task, Attempt(box))
        if score.failure is Failure.ENVIRONMENT:
            raise TaskError(f"the tests of task {task.id} give no verdict: {score.details}")
        return score.components.get("passed", score.reward or 0.0)

    async def _one(self, episode: _TerminalEpisode, action: Action, number: int, done: _Done) -> str:
        if done.is_submitted or done.is_late:
            return "[not done: the episode was over]"
        if number >= self._options.most_actions:
            done.refused = f"at most {self._options.most_actions} calls are done in one step"
            return f"[not done: {done.refused}]"
        if action.tool == SUBMIT.name:
            done.is_submitted = True
            return "[submitted]"
        command = action.arguments.get("command")
        why = _refusal(action.tool, command, [tool.name for tool in self._tools])
        if why or not isinstance(command, str):
            done.refused = why
            return f"[not done: {why}]"
        return await self._run(episode, command, done)

    async def _run(self, episode: _TerminalEpisode, command: str, done: _Done) -> str:
        left = episode.task.limits.agent_s - episode.used_s
        timeout_s = min(self._options.command_s, left)
        result = await episode.shell.run(command, timeout_s=timeout_s)
        if result.is_shell_lost:
            await _see_alive(episode.box)
        episode.used_s += result.duration_s
        done.is_late = episode.used_s >= episode.task.limits.agent_s
        done.commands.append(_facts(result))
        text = shown(result, most_characters=self._options.output_characters, timeout_s=timeout_s)
        return f"{text}\n[the time for this task is used up]" if done.is_late else text

    async def evaluate(self) -> Score:
        """The verdict of the task's tests, which only now are put into a fork of the box."""
        episode, began = self._episode, self._clock()
        ended = self._failed if episode is None else episode.ended
        if ended is not None and ended.is_broken:
            return unscored(ended)
        assert episode is not None
        try:
            score = await self._source.judge(episode.task, Attempt(episode.box))
        except (TaskError, BoxError) as problem:
            score = unscored(failed(problem))
        return replace(score, duration_s=self._clock() - began)

    @property
    def box(self) -> Sandbox:
        """The box of the episode, for another agent's harness to run in. BoxError if there is none."""
        if self._episode is None:
            raise BoxError("no episode is open", fix="call reset first")
        return self._episode.box

    async def aclose(self) -> None:
        """Removes the box."""
        if self._episode is not None:
            episode, self._episode = self._episode, None
            self._failed = Info(failure=Failure.INFRASTRUCTURE, reason="the environment was closed")
            try:
                await episode.shell.aclose()
            finally:
                await episode.box.aclose()


def _text(text: str) -> Part:
    return Part(PartKind.TEXT, text)


def _refusal(tool: str, command: object, tools: list[str]) -> str:
    """Why a call is invalid; empty if it is valid."""
    if tool not in tools:
        return f"there is no tool {tool[:100]!r}; there are: {', '.join(tools)}"
    if not isinstance(command, str):
        return "bash needs `command`, a text"
    try:
        words_of(command)
    except BoxError as problem:
        return str(problem)
    return ""


def _facts(done: ShellResult) -> dict[str, Json]:
    facts: dict[str, Json] = {
        "exit_status": done.exit_status,
        "seconds": round(done.duration_s, 4),
        "output_bytes": done.output.total_bytes,
        "cwd": done.cwd,
    }
    if done.killed_by is not None:
        facts["killed_by"] = done.killed_by.value
    return facts


async def _see_alive(box: Sandbox) -> None:
    """BoxError if the box is gone: a shell may have ended through the agent or with its box."""
    seen = await box.exec(["true"], timeout_s=ALIVE_S)
    if seen.killed_by is KilledBy.BOX:
        raise BoxError(f"box {box.id} is gone", fix="begin the episode again")
