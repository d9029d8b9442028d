"""Resources servers of NeMo Gym, as ours: /seed_session, a route for each tool, and /verify with all calls."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from pathlib import Path

import aiohttp

from openclaw_rl.core.message import Json, Tool, json_list
from openclaw_rl.envs.bridges.foreign import ForeignStep, ForeignTasks, WrongActionError, shown_json
from openclaw_rl.envs.task import Action, Task
from openclaw_rl.envs.tasks.rows import Row, read_rows
from openclaw_rl.envs.tools.provider import tool_of
from openclaw_rl.errors import BoxError, TaskError

ROW = "nemo_gym_row"
PARAMS = "responses_create_params"
RESERVED = ("seed_session", "verify", "aggregate_metrics", "mcp")
ANSWER = tool_of("answer", "Say the final answer. The task ends.", "value", "What is said.")


class NemoGymEpisode:
    """Implements Foreign: one session, identified by a cookie. A task of `nemo_gym_tasks` contains its row.

    The tools are the row's, and `answer`, whose text becomes the last message that is verified.
    """

    def __init__(self, url: str, *, call_s: float = 60.0) -> None:
        self._url = url.rstrip("/")
        self._timeout = aiohttp.ClientTimeout(total=call_s)
        self._session: aiohttp.ClientSession | None = None
        self._row: Row = {}
        self._tools: tuple[Tool, ...] = ()
        self._output: list[Json] = []

    async def begin(self, task: Task, seed: int) -> tuple[ForeignStep, tuple[Tool, ...]]:
        """Begins a session with the task's row."""
        row = task.metadata.get(ROW)
        if not isinstance(row, dict):
            raise TaskError(f"task {task.id} is not one of NeMo Gym", fix="read its rows with nemo_gym_tasks")
        self._row, self._output = row, []
        own = _tools(row)
        self._tools = own if any(tool.name == ANSWER.name for tool in own) else (*own, ANSWER)
        self._session = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True), timeout=self._timeout)
        status, said = await self._post("seed_session", row)
        if status != 200:
            raise TaskError(f"{self._url}/seed_session refused the row with {status}: {said[:500]}")
        return ForeignStep(()), self._tools

    async def act(self, action: Action) -> ForeignStep:
        """One call. The server's answer is shown unchanged, errors included, as NeMo Gym's own agents do."""
        if action.tool not in {tool.name for tool in self._tools}:
            names = ", ".join(tool.name for tool in self._tools)
            raise WrongActionError(f"there is no tool {action.tool[:100]!r}; there are: {names}")
        if action.tool == ANSWER.name and ANSWER in self._tools:
            value = action.arguments.get("value")
            self._output.append(_message(value if isinstance(value, str) else json.dumps(value)))
            return ForeignStep((shown_json("[answered]"),), done=True)
        call = f"call_{secrets.token_hex(8)}"
        _, said = await self._post(action.tool, action.arguments)
        arguments = json.dumps(dict(action.arguments))
        kinds: tuple[dict[str, Json], ...] = (
            {"type": "function_call", "name": action.tool, "arguments": arguments, "id": call, "status": "completed"},
            {"type": "function_call_output", "output": said},
        )
        self._output += [{**kind, "call_id": call} for kind in kinds]
        return ForeignStep((shown_json(said),))

    async def score(self) -> float | None:
        """The reward of /verify for all calls and the answer."""
        response: dict[str, Json] = {
            "id": f"resp_{secrets.token_hex(8)}",
            "object": "response",
            "created_at": time.time(),
            "model": "policy",
            "output": list(self._output),
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": json_list(_params(self._row).get("tools")),
        }
        status, said = await self._post("verify", {**self._row, "response": response})
        try:
            reward = json.loads(said)["reward"] if status == 200 else None
        except (ValueError, TypeError, KeyError):
            reward = None
        if isinstance(reward, bool) or not isinstance(reward, int | float):
            raise TaskError(f"{self._url}/verify gave no reward, but {status}: {said[:500]}")
        return float(reward)

    async def _post(self, path: str, body: Mapping[str, Json]) -> tuple[int, str]:
        assert self._session is not None
        try:
            async with self._session.post(f"{self._url}/{path}", json=dict(body)) as response:
                return response.status, (await response.read()).decode("utf-8", "replace")
        except (aiohttp.ClientError, OSError, TimeoutError) as problem:
            why = f"{type(problem).__name__} {problem}".strip()[:300]
            raise BoxError(f"the resources server at {self._url} does not answer: {why}") from problem

    async def aclose(self) -> None:
        """Ends the session on this side: the protocol has no closing message."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def nemo_gym_tasks(path: Path) -> ForeignTasks:
    """The tasks in NeMo Gym's JSON lines, by number; unreadable rows are in `broken`."""
    numbers: list[str] = []

    def read(row: Row) -> tuple[str, Task]:
        numbers.append(f"{path.stem}/{len(numbers)}")
        _tools(row)
        said = _params(row).get("input")
        turns = [turn for turn in json_list(said) if isinstance(turn, dict)]
        texts = [said] if isinstance(said, str) else [_content(turn) for turn in turns]
        instruction = "\n\n".join(text for text in texts if text)
        if not instruction:
            raise TaskError(f"`{PARAMS}.input` contains no text")
        return numbers[-1], Task(numbers[-1], instruction, metadata={ROW: dict(row)})

    found, broken = read_rows(path, read)
    return ForeignTasks(path.stem, found.values(), broken)


def _params(row: Row) -> Mapping[str, Json]:
    params = row.get(PARAMS)
    if not isinstance(params, dict):
        raise TaskError(f"`{PARAMS}` is missing")
    return params


def _tools(row: Row) -> tuple[Tool, ...]:
    found: list[Tool] = []
    for tool in json_list(_params(row).get("tools")):
        name = tool.get("name") if isinstance(tool, dict) else None
        parameters = tool.get("parameters") if isinstance(tool, dict) else None
        if not isinstance(tool, dict) or not isinstance(name, str) or not isinstance(parameters, dict):
            raise TaskError(f"a tool is not valid: {str(tool)[:200]}")
        if name in RESERVED or not name.replace("_", "").replace("-", "").isalnum():
            raise TaskError(f"a tool cannot be called {name!r}")
        found.append(Tool(name, str(tool.get("description") or ""), parameters))
    return tuple(found)


def _content(turn: Mapping[str, Json]) -> str:
    """The text of a message, whose content is a text or a list of parts."""
    content = turn.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(str(part["text"]) for part in json_list(content) if isinstance(part, dict) and "text" in part)


def _message(text: str) -> dict[str, Json]:
    part: dict[str, Json] = {"type": "output_text", "text": text, "annotations": []}
    name = f"msg_{secrets.token_hex(8)}"
    return {"type": "message", "id": name, "role": "assistant", "status": "completed", "content": [part]}
