"""Serves our environments over OpenEnv's protocol: its clients list our tools, call them and get rewards."""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from aiohttp import WSMsgType, web

from openclaw_rl.core.message import Json, Tool
from openclaw_rl.envs.task import Action, Env, Info, Observation, Task
from openclaw_rl.errors import RequestError

MOST_BYTES = 4 << 20
SCHEMAS: dict[str, Json] = {
    "action": {
        "type": "object",
        "properties": {
            "type": {"enum": ["call_tool", "list_tools"]},
            "tool_name": {"type": "string"},
            "arguments": {"type": "object"},
        },
        "required": ["type"],
    },
    "observation": {
        "type": "object",
        "properties": {"tool_name": {"type": "string"}, "result": {}, "error": {}, "tools": {"type": "array"}},
    },
    "state": {
        "type": "object",
        "properties": {"episode_id": {"type": "string"}, "step_count": {"type": "integer"}, "task": {"type": "string"}},
    },
}


@dataclass(slots=True)
class _Session:
    """One connection with its own environment and state."""

    env: Env
    tools: tuple[Tool, ...] = ()
    task: str = ""
    episode_id: str | None = None
    steps: int = 0


class _SessionError(Exception):
    """An answer of type error, with one of OpenEnv's codes."""

    def __init__(self, code: str, said: str) -> None:
        super().__init__(said)
        self.code = code


def openenv_app(
    make: Callable[[], Env], tasks: Mapping[str, Task], *, name: str, key: str = "", most_sessions: int = 16
) -> web.Application:
    """The routes /ws, /health, /schema and /metadata; `make` gives each connection its own environment.

    A reset names its task as `task`, or takes one by its `seed`. The reward of the last step is the verdict on the
    episode. With a key, requests need it as a bearer token; serve without one on this machine's loopback only.
    """
    open_sessions = 0

    @web.middleware
    async def keyed(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if key and not hmac.compare_digest(given.encode(), key.encode()):
            return web.json_response({"detail": "the bearer token is missing or wrong"}, status=401)
        return await handler(request)

    async def websocket(request: web.Request) -> web.WebSocketResponse:
        nonlocal open_sessions
        socket = web.WebSocketResponse(max_msg_size=MOST_BYTES, heartbeat=30.0)
        await socket.prepare(request)
        if open_sessions >= most_sessions:
            data = {"active_sessions": open_sessions, "max_sessions": most_sessions}
            await socket.send_json(_error("CAPACITY_REACHED", "every session is taken", data))
            await socket.close()
            return socket
        open_sessions += 1
        session = _Session(make())
        try:
            async for message in socket:
                if message.type is not WSMsgType.TEXT:
                    continue
                answer = await _answer(session, message.data, tasks)
                if answer is None:
                    break
                await socket.send_json(answer)
        finally:
            open_sessions -= 1
            await session.env.aclose()
        return socket

    async def health(_: web.Request) -> web.Response:
        return web.json_response({"status": "healthy"})

    async def schema(_: web.Request) -> web.Response:
        return web.json_response(SCHEMAS)

    async def metadata(_: web.Request) -> web.Response:
        said = f"{len(tasks)} tasks of an OpenClaw-RL environment: list its tools, call them."
        return web.json_response({"name": name, "description": said, "version": "1"})

    app = web.Application(middlewares=[keyed])
    routes = (("/ws", websocket), ("/health", health), ("/schema", schema), ("/metadata", metadata))
    app.add_routes([web.get(path, handler) for path, handler in routes])
    return app


async def _answer(session: _Session, text: str, tasks: Mapping[str, Task]) -> dict[str, Json] | None:
    """The answer to a message; None after a closing message."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as problem:
        return _error("INVALID_JSON", f"Invalid JSON: {problem}")
    kind = said.get("type") if isinstance(said, dict) else None
    data = said.get("data", {}) if isinstance(said, dict) else None
    try:
        if not isinstance(data, dict):
            raise _SessionError("VALIDATION_ERROR", "`data` is an object")
        match kind:
            case "reset":
                return _observation(await _reset(session, data, tasks))
            case "step":
                return _observation(await _step(session, data))
            case "state":
                state: dict[str, Json] = {"episode_id": session.episode_id, "step_count": session.steps}
                return {"type": "state", "data": {**state, "task": session.task}}
            case "close":
                return None
        raise _SessionError("UNKNOWN_TYPE", f"Unknown message type: {kind}")
    except _SessionError as problem:
        return _error(problem.code, str(problem))


async def _reset(session: _Session, data: Mapping[str, Json], tasks: Mapping[str, Task]) -> dict[str, Json]:
    seed, name, episode = data.get("seed") or 0, data.get("task"), data.get("episode_id")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise _SessionError("VALIDATION_ERROR", f"seed is {seed!r}: a whole number from 0 on is needed")
    names = sorted(tasks)
    chosen = names[seed % len(names)] if name is None else str(name)
    if chosen not in tasks:
        raise _SessionError("VALIDATION_ERROR", f"there is no task {chosen!r}")
    seen = await session.env.reset(tasks[chosen], seed=seed)
    _see_sound(seen, seen.info)
    session.tools, session.task, session.steps = seen.tools, chosen, 0
    session.episode_id = str(episode) if episode is not None else None
    tools: list[Json] = [_tool(tool) for tool in seen.tools]
    return {"observation": {"text": seen.text, "task": chosen, "tools": tools}, "reward": None, "done": False}


async def _step(session: _Session, data: Mapping[str, Json]) -> dict[str, Json]:
    if data.get("type") == "list_tools":
        return {"observation": {"tools": [_tool(tool) for tool in session.tools]}, "reward": None, "done": False}
    tool, arguments = data.get("tool_name"), data.get("arguments", {})
    if data.get("type") != "call_tool" or not isinstance(tool, str) or not isinstance(arguments, dict):
        raise _SessionError("VALIDATION_ERROR", "an action is list_tools, or call_tool with tool_name and arguments")
    if not session.task:
        raise _SessionError("EXECUTION_ERROR", "reset comes first")
    seen: dict[str, Json] = {"tool_name": tool, "result": None, "error": None}
    if tool not in {one.name for one in session.tools}:
        said = f"there is no tool {tool[:100]!r}; there are: {', '.join(one.name for one in session.tools)}"
        seen["error"] = {"error_type": "tool_not_found", "message": said}
        return {"observation": seen, "reward": None, "done": False}
    result = await session.env.step([Action(tool, arguments)])
    _see_sound(result.observation, result.info)
    session.steps += 1
    seen["result"] = result.observation.text
    reward, is_over = result.reward, result.done or result.truncated
    if is_over:
        score = await session.env.evaluate()
        if score.reward is None:
            raise _SessionError("EXECUTION_ERROR", f"no verdict ({score.failure}): {score.details}")
        reward = score.reward
    return {"observation": seen, "reward": reward, "done": is_over}


def _see_sound(seen: Observation, info: Info) -> None:
    """A failed episode shows nothing: its client gets an error and no reward."""
    if not seen.parts:
        raise _SessionError("EXECUTION_ERROR", f"the episode failed or is over ({info.failure}): {info.reason}")


def _tool(tool: Tool) -> dict[str, Json]:
    return {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}


def _observation(data: dict[str, Json]) -> dict[str, Json]:
    return {"type": "observation", "data": data}


def _error(code: str, said: str, more: Mapping[str, Json] | None = None) -> dict[str, Json]:
    return {"type": "error", "data": {"message": said, "code": code, **(more or {})}}


async def serve_openenv(
    app: web.Application, *, host: str = "127.0.0.1", port: int = 8000
) -> tuple[web.AppRunner, int]:
    """Serves, and returns the address; closing the runner ends it. RequestError if the port is taken."""
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as problem:
        await runner.cleanup()
        raise RequestError(f"port {port} cannot be used: {problem.strerror}", fix="give another port") from problem
    return runner, int(runner.addresses[0][1])
