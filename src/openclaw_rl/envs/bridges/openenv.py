"""Environments served over OpenEnv's WebSocket, as ours. Its package is not needed, since the messages are few."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

import aiohttp

from openclaw_rl.core.message import Json, Tool, json_list
from openclaw_rl.envs.bridges.foreign import ForeignStep, WrongActionError, shown_json
from openclaw_rl.envs.task import Action, Part, PartKind, Task
from openclaw_rl.errors import BoxError, TaskError

ACT = "act"
MOST_BYTES = 100 << 20
AGENTS = ("VALIDATION_ERROR", "INVALID_JSON")  # errors that the action caused
MACHINES = ("CAPACITY_REACHED", "SESSION_ERROR", "FACTORY_ERROR")
WRONG_CALLS = ("invalid_args", "tool_not_found")


class OpenEnvEpisode:
    """Implements Foreign: one WebSocket is one session.

    A server with MCP tools offers those; any other has one tool, `act`, whose arguments are the action that /schema
    describes. `reset` in a task's metadata is sent with the reset.
    """

    def __init__(self, url: str, *, key: str = "", message_s: float = 60.0) -> None:
        self._url = url.rstrip("/").replace("ws://", "http://").replace("wss://", "https://")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._message_s = message_s
        self._session: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._has_tools = False

    async def begin(self, task: Task, seed: int) -> tuple[ForeignStep, tuple[Tool, ...]]:
        """Connects, resets, and asks for the tools."""
        given = task.metadata.get("reset", {})
        self._session = aiohttp.ClientSession(headers=self._headers)
        try:
            async with asyncio.timeout(self._message_s):
                self._socket = await self._session.ws_connect(self._url + "/ws", max_msg_size=MOST_BYTES)
        except (aiohttp.ClientError, OSError, TimeoutError) as problem:
            raise self._away(problem) from problem
        first = await self._asked("reset", {**(given if isinstance(given, dict) else {}), "seed": seed})
        return _step(first), await self._tools()

    async def _tools(self) -> tuple[Tool, ...]:
        try:
            found = (await self._asked("step", {"type": "list_tools"})).get("observation")
        except (WrongActionError, TaskError):
            found = None
        tools = found.get("tools") if isinstance(found, dict) else None
        if isinstance(tools, list):
            self._has_tools = True
            return tuple(_tool(tool) for tool in tools if isinstance(tool, dict))
        return (Tool(ACT, "Act in the environment.", await self._schema()),)

    async def _schema(self) -> dict[str, Json]:
        """The schema of an action, without the fields that every action has."""
        assert self._session is not None
        try:
            async with self._session.get(self._url + "/schema", raise_for_status=True) as response:
                schema = (await response.json())["action"]
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, TypeError) as problem:
            raise TaskError(f"{self._url}/schema does not describe an action: {problem}") from problem
        if not isinstance(schema, dict):
            raise TaskError(f"{self._url}/schema does not describe an action")
        properties = schema.get("properties")
        inner = {key: value for key, value in properties.items() if key != "metadata"} if properties else {}
        return {**schema, "properties": inner}

    async def act(self, action: Action) -> ForeignStep:
        """One step."""
        data = dict(action.arguments)
        if self._has_tools:
            data = {"type": "call_tool", "tool_name": action.tool, "arguments": data}
        elif action.tool != ACT:
            raise WrongActionError(f"there is no tool {action.tool[:100]!r}; there is: {ACT}")
        return _step(await self._asked("step", data))

    async def _asked(self, kind: str, data: Mapping[str, Json]) -> dict[str, Json]:
        assert self._socket is not None
        try:
            async with asyncio.timeout(self._message_s):
                await self._socket.send_str(json.dumps({"type": kind, "data": data}))
                said = json.loads(await self._socket.receive_str())
        except (aiohttp.ClientError, OSError, TimeoutError, TypeError, ValueError) as problem:
            # TypeError: the server closed the connection instead of answering
            raise self._away(problem) from problem
        body = said.get("data") if isinstance(said, dict) else None
        if not isinstance(body, dict):
            raise TaskError(f"{self._url} answered {str(said)[:200]!r}")
        if said.get("type") == "error":
            raise _error(body)
        return body

    def _away(self, problem: Exception) -> BoxError:
        why = f"{type(problem).__name__} {problem}".strip()[:300]
        return BoxError(f"the environment at {self._url} does not answer: {why}", fix="check that it runs")

    async def score(self) -> float | None:
        """None: the score is the sum of its rewards."""
        return None

    async def aclose(self) -> None:
        """Ends the session."""
        socket, self._socket = self._socket, None
        session, self._session = self._session, None
        if socket is not None and not socket.closed:
            try:
                await socket.send_str('{"type": "close"}')
                await socket.close()
            except (aiohttp.ClientError, OSError):
                pass  # it is gone already
        if session is not None:
            await session.close()


def _error(body: Mapping[str, Json]) -> Exception:
    code, said = body.get("code"), str(body.get("message"))
    if code in AGENTS:
        errors = json_list(body.get("errors"))
        return WrongActionError(f"{said}: {json.dumps(errors, default=str)[:1000]}" if errors else said)
    if code in MACHINES:
        return BoxError(f"the environment has no session: {said}")
    return TaskError(f"the environment failed: {said}")


def _step(body: Mapping[str, Json]) -> ForeignStep:
    """The content of an observation. A wrong tool call is the agent's fault; a missing tool ends the episode."""
    seen, reward = body.get("observation"), body.get("reward")
    error = seen.get("error") if isinstance(seen, dict) else None
    if isinstance(error, dict):
        kind, said = error.get("error_type"), str(error.get("message"))
        if kind in WRONG_CALLS:
            raise WrongActionError(said)
        if kind == "transport_error":
            raise TaskError(f"a tool of the environment failed: {said}")
        seen = said
    elif isinstance(seen, dict) and "tool_name" in seen:
        seen = seen.get("result")
    value = float(reward) if isinstance(reward, int | float) else None
    return ForeignStep(_parts(seen), value, bool(body.get("done")))


def _parts(seen: Json) -> tuple[Part, ...]:
    """The texts of an MCP result; anything else as JSON."""
    blocks = seen.get("content") if isinstance(seen, dict) else None
    if isinstance(blocks, list) and blocks and all(isinstance(one, dict) and "text" in one for one in blocks):
        return tuple(Part(PartKind.TEXT, str(one["text"])) for one in blocks if isinstance(one, dict))
    return (shown_json(seen),)


def _tool(given: Mapping[str, Json]) -> Tool:
    schema = given.get("input_schema", given.get("inputSchema"))
    none: dict[str, Json] = {"type": "object", "properties": {}}
    parameters = schema if isinstance(schema, dict) else none
    return Tool(str(given.get("name")), str(given.get("description") or ""), parameters)
