"""The tools of MCP servers as an agent's tools, through the official SDK (the extra `mcp`)."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

from openclaw_rl.core.message import Json, Tool
from openclaw_rl.envs.box.sandbox import Sandbox
from openclaw_rl.envs.task import Action
from openclaw_rl.envs.tools.mcp_box import box_transport
from openclaw_rl.envs.tools.mcp_servers import McpServer
from openclaw_rl.envs.tools.provider import CallResult, CallStatus, refused
from openclaw_rl.errors import BoxError, OpenClawRLError, TaskError, innermost

log = logging.getLogger(__name__)
START_S = 30.0
ALIVE_S = 3.0  # time for a server to show that it lives after a tool took too long
CLOSE_S = 10.0
MOST_TOOLS = 200
TIMED_OUT, CLOSED, BAD_ARGUMENTS = -32001, -32000, (-32601, -32602)


class McpTools:
    """The tools of one server. `start` connects it, as does the first call after the server was lost.

    TaskError: the server does not work. BoxError: it cannot be reached.
    """

    def __init__(self, server: McpServer, box: Sandbox | None, *, most_characters: int = 8_000) -> None:
        self._server = server
        self._box = box
        self._most_characters = most_characters
        self._tools: tuple[Tool, ...] = ()
        self._connection: _Connection | None = None

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that the server offered at the first connection."""
        return self._tools

    async def start(self) -> None:
        """Connects, and asks for the tools."""
        connection = await self._connected()
        if not self._tools:
            self._tools = await _listed(connection.client, self._server.name)

    async def _connected(self) -> _Connection:
        if self._connection is None:
            connection = _Connection(self._server, self._box)
            await connection.open()
            self._connection = connection
        return self._connection

    async def call(self, action: Action, *, timeout_s: float) -> CallResult:
        """The result of a tool: its text, cut in the middle; the tool's own errors are shown unchanged."""
        connection = await self._connected()
        began = time.monotonic()
        status, text = await _called(connection.client, action, timeout_s)
        if status is CallStatus.TIMEOUT and not await _is_alive(connection.client):
            status, text = CallStatus.LOST, f"{text}; the server does not answer any more"
        if status is CallStatus.LOST:
            await self.aclose()
            text = f"[{text}: the next call starts it again, in its first state]"
        if status is CallStatus.REFUSED:
            return refused(text)
        return CallResult(_cut(text, self._most_characters), status, time.monotonic() - began)

    async def aclose(self) -> None:
        """Ends the connection, and the server if it was started here."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()


class _Connection:
    """A client and its asyncio task: the SDK requires that the task that opened it closes it."""

    def __init__(self, server: McpServer, box: Sandbox | None) -> None:
        self._server = server
        self._box = box
        self._closing = asyncio.Event()
        self._opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._holder: asyncio.Task[None] | None = None
        self.client: Any = None

    async def open(self) -> None:
        """Connects, or raises the reason."""
        self._holder = asyncio.create_task(self._hold())
        try:
            async with asyncio.timeout(START_S):
                self.client = await asyncio.shield(self._opened)
        except TimeoutError as problem:
            await self.aclose()
            raise self._failed(f"did not answer within {START_S:g} s") from problem
        except OpenClawRLError:
            await self.aclose()
            raise

    async def _hold(self) -> None:
        try:
            from mcp import Client
        except ImportError:
            self._opened.set_exception(TaskError("MCP servers need openclaw-rl[mcp]", fix="install the extra"))
            return
        try:
            async with Client(self._transport()) as client:
                self._opened.set_result(client)
                await self._closing.wait()
        except asyncio.CancelledError:
            raise
        except Exception as problem:  # any failure of a server: the caller that waits reports it, else the log does
            if self._opened.done():
                log.warning("the MCP server %s broke after it was connected: %s", self._server.name, _said(problem))
            else:
                self._opened.set_exception(_own(problem) or self._failed(_said(problem)))

    def _transport(self) -> Any:
        from mcp.client.sse import sse_client
        from mcp.client.stdio import StdioServerParameters, stdio_client
        from mcp.client.streamable_http import streamable_http_client

        server = self._server
        if server.url:
            return sse_client(server.url) if server.is_sse else streamable_http_client(server.url)
        if server.on_host:
            words = StdioServerParameters(command=server.command, args=list(server.args), env=dict(server.env))
            return stdio_client(words)
        if self._box is None:
            raise TaskError(f"the MCP server {server.name} runs in a box, and there is none")
        return box_transport(self._box, server)

    def _failed(self, why: str) -> TaskError | BoxError:
        said = f"the MCP server {self._server.name} cannot be used: {why}"
        return BoxError(said, fix=f"check that {self._server.url} answers") if self._server.url else TaskError(said)

    async def aclose(self) -> None:
        """Ends it; one that does not end is cancelled."""
        self._closing.set()
        if self._holder is not None:
            _, left = await asyncio.wait({self._holder}, timeout=CLOSE_S if self._opened.done() else 0)
            for task in left:
                task.cancel()
            await asyncio.wait({self._holder})  # what went wrong was reported where it was caught
        if self._opened.done() and not self._opened.cancelled():
            self._opened.exception()


async def _listed(client: Any, name: str) -> tuple[Tool, ...]:
    """All tools of a server, page by page."""
    found: list[Tool] = []
    cursor: str | None = None
    try:
        async with asyncio.timeout(START_S):
            while len(found) < MOST_TOOLS:
                page = await client.list_tools(cursor=cursor)
                found += [Tool(tool.name, tool.description or "", tool.input_schema) for tool in page.tools]
                cursor = page.next_cursor
                if not cursor or not page.tools:
                    break
    except Exception as problem:
        raise TaskError(f"the MCP server {name} does not list its tools: {_said(problem)}") from problem
    if not found:
        raise TaskError(f"the MCP server {name} has no tools")
    return tuple(found)


async def _called(client: Any, action: Action, timeout_s: float) -> tuple[CallStatus, str]:
    from mcp import MCPError

    try:
        # The SDK's own limit does not cover sending a message: our time limit covers both.
        async with asyncio.timeout(timeout_s + 1.0):
            done = await client.call_tool(action.tool, dict(action.arguments), read_timeout_seconds=timeout_s)
    except MCPError as problem:
        if problem.code in BAD_ARGUMENTS:
            return CallStatus.REFUSED, problem.message
        if problem.code == CLOSED:
            return CallStatus.LOST, "the server ended"
        if problem.code == TIMED_OUT:
            return CallStatus.TIMEOUT, f"[stopped, it took longer than {timeout_s:g} s]"
        return CallStatus.RAISED, problem.message
    except TimeoutError:
        return CallStatus.TIMEOUT, f"[stopped, it took longer than {timeout_s:g} s]"
    except Exception as problem:  # closed streams, broken messages, answers that break their schema
        return CallStatus.LOST, f"the server failed ({_said(problem)})"
    return CallStatus.RAISED if done.is_error else CallStatus.OK, _text_of(done)


async def _is_alive(client: Any) -> bool:
    try:
        async with asyncio.timeout(ALIVE_S):
            await client.list_tools(cache_mode="bypass")
    except Exception as problem:  # any failure means that it does not live
        log.warning("an MCP server whose tool took too long gives no good answer: %s", _said(problem))
        return False
    return True


def _text_of(done: Any) -> str:
    """A result as text; other content is named."""
    said = [_part(block.model_dump(mode="json", by_alias=True, exclude_none=True)) for block in done.content]
    if not said and done.structured_content is not None:
        said = [json.dumps(done.structured_content, ensure_ascii=False)]
    return "\n".join(said) or "[it gave nothing]"


def _part(block: dict[str, Json]) -> str:
    resource = block.get("resource")
    inner = resource if isinstance(resource, dict) else block
    if isinstance(inner.get("text"), str):
        return str(inner["text"])
    return f"[{block.get('type')} {inner.get('mimeType', '')} {inner.get('uri', '')}".rstrip() + "]"


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def _own(problem: BaseException) -> OpenClawRLError | None:
    """Our own error within what the SDK's task groups raise."""
    if isinstance(problem, BaseExceptionGroup):
        return next(filter(None, map(_own, problem.exceptions)), None)
    return problem if isinstance(problem, OpenClawRLError) else None


def _said(problem: BaseException) -> str:
    problem = innermost(problem)
    return f"{type(problem).__name__}: {str(problem)[:300]}"
