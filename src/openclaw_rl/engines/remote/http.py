"""HTTP to one server: answers, event streams, and the meaning of its errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus

import aiohttp
import msgspec

from openclaw_rl.core.message import Json
from openclaw_rl.errors import EngineError

CONNECT_S = 5.0
IDLE_S = 2.0  # a connection unused for longer is not used again: uvicorn, under vLLM and SGLang, closes it after 5 s
DONE = b"data: [DONE]"
ENGINE_IS_DEAD = "EngineCore encountered an issue"  # vLLM's server answers this for a moment before it also ends
GONE = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, asyncio.TimeoutError, ConnectionError)


class ServerGoneError(EngineError):
    """The server cannot be reached, or its answer broke off."""


class ServerRefusal(EngineError):
    """The server refused the request; `status` is HTTP's."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status


class ServerHttp:
    """A connection to one server, which counts as gone if it sends nothing for `silent_s` during an answer."""

    def __init__(self, url: str, key: str = "", *, silent_s: float = 600.0) -> None:
        self.url = url.rstrip("/")
        self._silent_s = silent_s
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._session: aiohttp.ClientSession | None = None

    async def get(self, path: str, *, timeout_s: float = 30.0) -> Json:
        """The answer's JSON, or its text if it is not JSON."""
        return await self._answer("GET", path, None, timeout_s)

    async def post(self, path: str, body: Mapping[str, Json], *, timeout_s: float | None = None) -> Json:
        """The answer's JSON, or its text if it is not JSON. Raises ServerGoneError, ServerRefusal."""
        return await self._answer("POST", path, body, timeout_s)

    async def events(self, path: str, body: Mapping[str, Json]) -> AsyncGenerator[bytes, None]:
        """The data of server-sent events, without the final [DONE]. Raises ServerGoneError, ServerRefusal."""
        try:
            async with self._ask("POST", path, body, None) as answer:
                if answer.status != HTTPStatus.OK:
                    raise self.refusal(answer.status, _said(await answer.read()))
                rest = b""
                async for data in answer.content.iter_any():  # to its very end, so that the connection can be reused
                    *lines, rest = (rest + data).split(b"\n")
                    for line in lines:
                        if line.startswith(b"data:") and line != DONE:
                            yield line[5:]
        except GONE as problem:
            raise ServerGoneError(f"{self.url} is gone: {problem or type(problem).__name__}") from problem
        except RuntimeError as problem:  # aiohttp's, if the connection was closed from this side
            if self._session is not None:
                raise
            raise ServerGoneError(f"the connection to {self.url} was closed") from problem

    def refusal(self, status: int, problem: str) -> ServerRefusal | ServerGoneError:
        """The exception for an error of the server."""
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR and ENGINE_IS_DEAD in problem:
            return ServerGoneError(f"{self.url} is gone: {problem}")
        return ServerRefusal(status, problem)

    async def aclose(self) -> None:
        """Closes the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _answer(self, method: str, path: str, body: Mapping[str, Json] | None, timeout_s: float | None) -> Json:
        try:
            async with self._ask(method, path, body, timeout_s) as answer:
                data = await answer.read()
        except GONE as problem:
            raise ServerGoneError(f"{self.url} is gone: {problem or type(problem).__name__}") from problem
        if answer.status != HTTPStatus.OK:
            raise self.refusal(answer.status, _said(data))
        try:
            found: Json = msgspec.json.decode(data) if data else None
        except msgspec.DecodeError:
            return data.decode("utf-8", "replace")
        return found

    def _ask(
        self, method: str, path: str, body: Mapping[str, Json] | None, timeout_s: float | None
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S)
            self._session = aiohttp.ClientSession(headers=self._headers, connector=connector)
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S, sock_read=self._silent_s)
        data = None if body is None else msgspec.json.encode(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        return self._session.request(method, self.url + path, data=data, headers=headers, timeout=timeout)


def _said(data: bytes) -> str:
    """The message in an error's body, in the shapes that these servers use."""
    try:
        found = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data.decode("utf-8", "replace").strip()[:500] or "no reason was given"
    for name in ("error", "message", "detail", "error_message"):
        if isinstance(found, dict) and name in found:
            found = found[name]
    return str(found)[:500]
