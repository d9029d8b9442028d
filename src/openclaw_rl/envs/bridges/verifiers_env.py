"""Environments of verifiers (0.4) played against a running server; each run is an episode.

verifiers has its own loop and its own harnesses, which talk to an endpoint: ours. So nothing is translated. Each run
begins as an episode, its requests carry the episode's id, and its reward ends it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
from verifiers.v1 import EnvConfig, EvalClientConfig, ModelContext
from verifiers.v1.utils.loaders import load_environment

from openclaw_rl.core.episode import FailureClass
from openclaw_rl.core.message import Json
from openclaw_rl.errors import EngineError

KEY_VARIABLE = "OPENCLAW_RL_VERIFIERS_KEY"  # verifiers reads keys from the environment only
# Who is at fault for which of its errors; any other is the environment's.
AGENTS = ("HarnessError",)
MACHINES = ("ProviderError", "SandboxError", "InterceptionError", "TunnelError")
CALL_S = 60.0


@dataclass(frozen=True, slots=True)
class VerifiersRun:
    """One run: its episode on the server, its reward, and who was at fault if it has none."""

    episode: str
    task: str
    reward: float | None
    failure: FailureClass = FailureClass.NONE
    why: str = ""


async def play_verifiers(
    config: EnvConfig, server: str, *, key: str = "", model: str = "default", tasks: int, group_size: int = 1
) -> list[VerifiersRun]:
    """Plays each of the first `tasks` tasks `group_size` times, and reports every run to the server as an episode.

    EngineError if the server does not take an episode.
    """
    env = load_environment(config)
    if key:
        os.environ[KEY_VARIABLE] = key
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    url = server.rstrip("/").removesuffix("/v1")
    runs: list[VerifiersRun] = []
    limit = aiohttp.ClientTimeout(total=CALL_S)
    async with aiohttp.ClientSession(headers=headers, timeout=limit) as session, env.serving():
        for task in env.taskset.take(tasks):
            runs += await _group(session, url, env, task, model=model, size=group_size)
    return runs


async def _group(
    session: aiohttp.ClientSession, url: str, env: Any, task: Any, *, model: str, size: int
) -> list[VerifiersRun]:
    """One task's runs, at the same time: their episodes form a group."""
    begun: dict[str, Json] = {"task": task.key, "environment": "verifiers", "group_size": size}
    if size > 1:
        begun["group"] = f"{task.key}-{os.urandom(4).hex()}"
    names = [str((await _post(session, f"{url}/v1/rl/episodes", begun))["id"]) for _ in range(size)]
    return list(await asyncio.gather(*(_run(session, url, env, task, (name, model)) for name in names)))


async def _run(session: aiohttp.ClientSession, url: str, env: Any, task: Any, names: tuple[str, str]) -> VerifiersRun:
    episode, model = names
    client = EvalClientConfig(base_url=f"{url}/v1", api_key_var=KEY_VARIABLE, headers={"X-Episode-Id": episode})
    played = await env.run_episode(task, ModelContext(model=model, client=client))
    reward, failure, why = outcome_of(played.traces, played.errors)
    ended: dict[str, Json] = {"outcome": reward, "failure": failure.value, "why": why[:1000]}
    await _post(session, f"{url}/v1/rl/episodes/{episode}/end", ended)
    return VerifiersRun(episode, task.key, reward, failure, why)


def outcome_of(traces: Sequence[Any], errors: Sequence[Any]) -> tuple[float | None, FailureClass, str]:
    """The joint reward of a run's traces, or who is at fault if there is none."""
    problems = [*errors, *(error for trace in traces for error in trace.errors)]
    if not problems and traces:
        return float(sum(trace.reward for trace in traces)), FailureClass.NONE, ""
    if not problems:
        return None, FailureClass.ENVIRONMENT, "it has no trace"
    kinds = [problem.type for problem in problems]
    why = f"{kinds[-1]}: {problems[-1].message}"
    if any(kind in MACHINES for kind in kinds):
        return None, FailureClass.INFRASTRUCTURE, why
    return None, FailureClass.AGENT if kinds[-1] in AGENTS else FailureClass.ENVIRONMENT, why


async def _post(session: aiohttp.ClientSession, url: str, body: dict[str, Json]) -> dict[str, Json]:
    try:
        async with session.post(url, json=body) as response:
            said = await response.text()
            if response.status != 200:
                raise EngineError(f"{url} answered {response.status}: {said[:500]}", fix="see the server's log")
            found: dict[str, Json] = await response.json()
            return found
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as problem:
        raise EngineError(f"{url} does not answer: {problem}", fix="check that the server runs") from problem
