"""Counts the requests being answered and the idle time, and refuses new requests at the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass, field

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from openclaw_rl.errors import RequestError
from openclaw_rl.serve.failures import error_response

log = logging.getLogger(__name__)
MOST_CHARS = 300  # of an error's message
CUT_S = 5.0  # time for cut-off answers to store their turns
STOPPING = RequestError("the server is stopping", fix="ask again in some seconds", status=503, code="stopping")
HEALTH = ("/healthz", "/health")


@dataclass(frozen=True, slots=True)
class _Open:
    """A request that is being answered."""

    request: web.Request
    ended: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Activity:
    """Counts the requests being answered; when it `is_stopping`, new ones are turned away."""

    running: int = 0
    last_s: float = float("-inf")  # monotonic
    refused: int = 0  # answered with 4xx
    failed: int = 0  # answered with 5xx
    turned_away: int = 0  # requests while the server was stopping
    last_problem: str = ""  # message of a request
    is_stopping: bool = False
    _quiet: asyncio.Event = field(default_factory=asyncio.Event)
    _open: dict[int, _Open] = field(default_factory=dict)  # those being answered, as many as `running`

    def __post_init__(self) -> None:
        self._quiet.set()

    async def quiet(self) -> None:
        """Waits until no request is being answered."""
        await self._quiet.wait()

    def stop(self) -> None:
        """Refuses new requests from now on."""
        self.is_stopping = True

    async def finished(self, within_s: float) -> int:
        """Waits until all requests are answered; returns how many answers were cut off after this time."""
        self.stop()
        try:
            async with asyncio.timeout(within_s):
                await self.quiet()
        except TimeoutError:
            cut = len(self._open)
            log.warning("cut off answers=%d that were not finished after %g s", cut, within_s)
            for held in self._open.values():
                if held.request.transport is not None:
                    held.request.transport.abort()  # which cancels the handlers; the turns are stored as cancelled
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CUT_S):
                    await self.quiet()
            return cut
        return 0

    async def outlived(self) -> None:
        """Waits until the present requests are answered."""
        for held in list(self._open.values()):
            await held.ended.wait()

    async def quiet_within(self, seconds: float) -> None:
        """Waits until no request is being answered, or this many seconds have passed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.quiet()

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.running == 0

    def idle_s(self) -> float:
        """Seconds since the last answer ended; 0 while one is being given."""
        return 0.0 if self.running else time.monotonic() - self.last_s

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Records when an answer begins and ends."""
        if self.is_stopping and (request.method == "POST" or request.path in HEALTH):
            self.turned_away += 1
            refused = error_response(STOPPING, request.path)
            refused.force_close()  # a retry then reaches the next server
            return refused
        if request.method != "POST":
            return await handler(request)
        self.running += 1
        opened = self._open[id(request)] = _Open(request)
        self._quiet.clear()
        try:
            response = await handler(request)
            if response.status >= 400:
                self._note(request, response)
            return response
        finally:
            self.running -= 1
            del self._open[id(request)]
            opened.ended.set()
            self.last_s = time.monotonic()
            if not self.running:
                self._quiet.set()

    def _note(self, request: web.Request, response: web.StreamResponse) -> None:
        """Remembers what went wrong, in our own message to the client."""
        self.refused += response.status < 500
        self.failed += response.status >= 500
        body = response.text if isinstance(response, web.Response) else None
        said = f": {_message(body)}" if body else ""
        self.last_problem = f"{request.method} {request.path} was answered {response.status}{said}"


def _message(body: str) -> str:
    """The message in an error's body, whatever API's shape it has."""
    try:
        error = msgspec.json.decode(body, type=_ErrorBody).error
    except msgspec.DecodeError:
        return ""
    return error.message[:MOST_CHARS]


class _Error(msgspec.Struct):
    message: str = ""


class _ErrorBody(msgspec.Struct):
    error: _Error = msgspec.field(default_factory=_Error)
