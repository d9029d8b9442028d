"""When somebody was last served, for the stages that wait for quiet."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

MOST_CHARS = 300  # of an error's message


@dataclass(slots=True)
class Activity:
    """Counts the requests being answered."""

    running: int = 0
    last_s: float = float("-inf")  # monotonic
    refused: int = 0  # answered with 4xx
    failed: int = 0  # answered with 5xx
    last_problem: str = ""  # of a request, in words
    _quiet: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._quiet.set()

    async def quiet(self) -> None:
        """Until nobody is being served."""
        await self._quiet.wait()

    @property
    def is_idle(self) -> bool:
        """Whether nobody is being served."""
        return self.running == 0

    def idle_s(self) -> float:
        """Seconds since the last answer ended; 0 while one is being given."""
        return 0.0 if self.running else time.monotonic() - self.last_s

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Notes when an answer begins and ends."""
        if request.method != "POST":
            return await handler(request)
        self.running += 1
        self._quiet.clear()
        try:
            response = await handler(request)
            if response.status >= 400:
                self._note(request, response)
            return response
        finally:
            self.running -= 1
            self.last_s = time.monotonic()
            if not self.running:
                self._quiet.set()

    def _note(self, request: web.Request, response: web.StreamResponse) -> None:
        """Remembers what went wrong; the words are ours, as the client was told them."""
        self.refused += response.status < 500
        self.failed += response.status >= 500
        body = response.text if isinstance(response, web.Response) else None
        said = f": {_message(body)}" if body else ""
        self.last_problem = f"{request.method} {request.path} was answered {response.status}{said}"


def _message(body: str) -> str:
    """The message in an error's body, whatever API's shape it has."""
    try:
        error = msgspec.json.decode(body, type=_Body).error
    except msgspec.DecodeError:
        return ""
    return error.message[:MOST_CHARS]


class _Error(msgspec.Struct):
    message: str = ""


class _Body(msgspec.Struct):
    error: _Error = msgspec.field(default_factory=_Error)
