"""Unmodified mini-swe-agent with our boxes and our server; imported only if it is installed.

Its commands run in the box of a task, its requests carry the episode's id, and our judge's verdict ends the episode.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import aiohttp
import yaml
from litellm.exceptions import ContextWindowExceededError
from minisweagent import package_dir
from minisweagent.agents.default import DefaultAgent
from minisweagent.exceptions import Submitted
from minisweagent.models.litellm_model import LitellmModel

from openclaw_rl.core.message import Json
from openclaw_rl.envs.box.commands import words_of
from openclaw_rl.envs.box.sandbox import KilledBy, Sandbox
from openclaw_rl.envs.task import Failure, Score, Task
from openclaw_rl.envs.tasks.source import Attempt, TaskSource, in_a_box
from openclaw_rl.errors import BoxError, TaskError

T = TypeVar("T")
DONE = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"  # its prompts tell the agent to print this
CALL_S = 60.0
ONE_STREAM = 'exec 2>&1; exec /bin/bash -c "$1"'


@dataclass(frozen=True, slots=True)
class MiniSweEndpoint:
    """Our server, for mini-swe-agent and for the reports on the episode."""

    url: str  # without /v1
    key: str  # may chat, begin episodes and end them
    model: str = "default"
    parameters: Mapping[str, Json] = field(default_factory=dict)  # of each request: temperature, max_tokens


@dataclass(frozen=True, slots=True)
class MiniSweLimits:
    """Limits of an attempt; its state is judged when one is reached. 0 means no limit."""

    steps: int = 30
    seconds: int = 1800
    command_s: float = 60.0


@dataclass(frozen=True, slots=True)
class MiniSweRun:
    """The result of an attempt."""

    episode: str
    exit_status: str  # in mini-swe-agent's words
    calls: int
    score: Score


class BoxEnvironment:
    """A box with mini-swe-agent's environment protocol: execute, get_template_vars, serialize.

    The agent runs in a thread and its box on `loop`. A failing box raises BoxError, which ends the attempt.
    """

    def __init__(self, box: Sandbox, loop: asyncio.AbstractEventLoop, *, command_s: float) -> None:
        self._box = box
        self._loop = loop
        self._is_over = False
        self.config = {"cwd": box.spec.workdir, "timeout": command_s}
        self._command_s = command_s

    def execute(self, action: Mapping[str, str], cwd: str = "", *, timeout: float | None = None) -> dict[str, object]:
        """The output and status of a command, run in a new shell; raises Submitted if the output says so."""
        if self._is_over:
            raise BoxError("the attempt is over")
        command, timeout_s = action.get("command", ""), timeout or self._command_s
        try:
            words_of(command)
        except BoxError as problem:  # no shell can take it: the agent's mistake
            return {"output": "", "returncode": 126, "exception_info": str(problem)}
        words = ["/bin/bash", "-c", ONE_STREAM, "bash", command]
        done = in_a_box(self._wait(self._box.exec(words, timeout_s=timeout_s, cwd=cwd or None)))
        ended = "" if done.killed_by is None else f"The command was stopped: {done.killed_by}"
        if done.killed_by is KilledBy.TIMEOUT:
            ended += f" after {timeout_s:g} s"
        text = done.stdout.text
        first, _, rest = text.lstrip().partition("\n")
        if first.strip() == DONE and done.exit_status == 0:
            fields = {"exit_status": "Submitted", "submission": rest}
            raise Submitted({"role": "exit", "content": rest, "extra": fields})
        return {"output": text, "returncode": done.exit_status, "exception_info": ended}

    def _wait(self, work: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def end(self) -> None:
        """Refuses all commands from now on."""
        self._is_over = True

    def get_template_vars(self, **more: object) -> dict[str, object]:
        """The variables for its prompts. None come from this machine's environment."""
        return {**self.config, **platform.uname()._asdict(), **more}

    def serialize(self) -> dict[str, object]:
        """The entry about the box in its record of the attempt."""
        kind = f"{type(self).__module__}.{type(self).__name__}"
        return {"info": {"config": {"environment": dict(self.config), "environment_type": kind}}}


async def run_mini_swe(
    source: TaskSource,
    task: Task,
    box: Sandbox,
    *,
    endpoint: MiniSweEndpoint,
    limits: MiniSweLimits | None = None,
    group: str | None = None,
    record: Path | None = None,
) -> MiniSweRun:
    """One attempt at a task in its box, as an episode of our server from start to outcome.

    `box` comes from `source.start`; the caller closes it. `record` gets mini-swe-agent's own record.
    Raises aiohttp.ClientError if the server cannot be reached; the episode then stays open until it is idle.
    """
    limits = limits or MiniSweLimits()
    headers = {"Authorization": f"Bearer {endpoint.key}"}
    timeout = aiohttp.ClientTimeout(total=CALL_S)
    async with aiohttp.ClientSession(endpoint.url, headers=headers, timeout=timeout) as http:
        begun = await _post(http, "", {"task": task.id, "group": group, "environment": "software"})
        episode = str(begun["id"])
        environment = BoxEnvironment(box, asyncio.get_running_loop(), command_s=limits.command_s)
        agent = _agent(environment, endpoint, limits, episode, record)
        try:
            exit_status, score = await _attempt(source, task, box, agent)
        finally:
            environment.end()
        if agent.n_calls and score.reward is not None:  # no later request shows it
            await _post(http, f"/{episode}/steps", {"step": agent.n_calls - 1, "observation": _last_shown(agent)})
        await _post(http, f"/{episode}/end", _ending(score))
        return MiniSweRun(episode, exit_status, agent.n_calls, score)


async def _attempt(source: TaskSource, task: Task, box: Sandbox, agent: DefaultAgent) -> tuple[str, Score]:
    """How the agent ended, and the verdict on the box."""
    try:
        ending = await asyncio.to_thread(agent.run, task.instruction)
        exit_status = str(ending.get("exit_status", ""))
    except ContextWindowExceededError:  # the context is full: its work so far is judged
        exit_status = "ContextWindowExceeded"
    except BoxError as problem:
        return "BoxError", Score(None, details=problem.problem, failure=Failure.INFRASTRUCTURE)
    except Exception as problem:  # its client raises many kinds: the endpoint failed, not the agent
        what = f"{type(problem).__name__}: {problem}"[:500]
        return type(problem).__name__, Score(None, details=what, failure=Failure.INFRASTRUCTURE)
    try:
        return exit_status, await source.judge(task, Attempt(box))
    except BoxError as problem:
        return exit_status, Score(None, details=problem.problem, failure=Failure.INFRASTRUCTURE)
    except TaskError as problem:
        return exit_status, Score(None, details=problem.problem, failure=Failure.ENVIRONMENT)


def _agent(
    environment: BoxEnvironment,
    endpoint: MiniSweEndpoint,
    limits: MiniSweLimits,
    episode: str,
    record: Path | None,
) -> DefaultAgent:
    """The agent as shipped, with its own prompts; its requests carry the episode's id."""
    shipped = yaml.safe_load((package_dir / "config" / "mini.yaml").read_text("utf-8"))
    model = LitellmModel(
        model_name=f"openai/{endpoint.model}",
        cost_tracking="ignore_errors",
        **{key: shipped["model"][key] for key in ("observation_template", "format_error_template")},
        model_kwargs={
            "api_base": f"{endpoint.url}/v1",
            "api_key": endpoint.key,
            "extra_headers": {"X-Episode-Id": episode, "X-Episode-Observation": "terminal"},
            "drop_params": True,
            **endpoint.parameters,
        },
    )
    templates = {key: shipped["agent"][key] for key in ("system_template", "instance_template")}
    return DefaultAgent(
        model,
        environment,
        step_limit=limits.steps,
        wall_time_limit_seconds=limits.seconds,
        cost_limit=0.0,
        output_path=record,
        **templates,
    )


def _last_shown(agent: DefaultAgent) -> str:
    """The message after the agent's last answer."""
    shown: list[str] = []
    for message in reversed(agent.messages):
        if message.get("role") == "assistant":
            break
        if message.get("role") != "exit":
            shown.append(str(message.get("content")))
    return "\n".join(reversed(shown)) or "[submitted]"


def _ending(score: Score) -> dict[str, Json]:
    if score.failure in (Failure.ENVIRONMENT, Failure.INFRASTRUCTURE):
        return {"failure": score.failure.value, "why": score.details[:1000]}
    return {"outcome": score.reward, "why": score.details[-1000:]}


async def _post(http: aiohttp.ClientSession, path: str, body: dict[str, Json]) -> dict[str, Json]:
    async with http.post(f"/v1/rl/episodes{path}", json=body) as answer:
        answer.raise_for_status()
        found: dict[str, Json] = await answer.json()
        return found
