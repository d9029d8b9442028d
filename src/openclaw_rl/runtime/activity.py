"""Who is being served, and when somebody last was; and the end, at which nobody new is."""

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
CUT_S = 5.0  # what answers that were cut off take to enter their turns
STOPPING = RequestError("the server is stopping", fix="ask again in some seconds", status=503, code="stopping")
HEALTH = ("/healthz", "/health")


@dataclass(frozen=True, slots=True)
class _Open:
    """A request that is being answered."""

    request: web.Request
    ended: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Activity:
    """Counts the requests being answered; once it `is_stopping`, those that come are turned away."""

    running: int = 0
    last_s: float = float("-inf")  # monotonic
    refused: int = 0  # answered with 4xx
    failed: int = 0  # answered with 5xx
    turned_away: int = 0  # asked for while the server was stopping
    last_problem: str = ""  # of a request, in words
    is_stopping: bool = False
    _quiet: asyncio.Event = field(default_factory=asyncio.Event)
    _open: dict[int, _Open] = field(default_factory=dict)  # those being answered, as many as `running`

    def __post_init__(self) -> None:
        self._quiet.set()

    async def quiet(self) -> None:
        """Until nobody is being served."""
        await self._quiet.wait()

    def stop(self) -> None:
        """From now on nobody new is served."""
        self.is_stopping = True

    async def finished(self, within_s: float) -> int:
        """Until all that was begun is answered; how many answers were cut off since they took longer than this."""
        self.stop()
        try:
            async with asyncio.timeout(within_s):
                await self.quiet()
        except TimeoutError:
            cut = len(self._open)
            log.warning("cut off answers=%d that were not finished after %g s", cut, within_s)
            for held in self._open.values():
                if held.request.transport is not None:
                    held.request.transport.abort()  # which cancels whoever answers; the turns are entered as cancelled
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CUT_S):
                    await self.quiet()
            return cut
        return 0

    async def outlived(self) -> None:
        """Until all that is being answered now is answered."""
        for held in list(self._open.values()):
            await held.ended.wait()

    async def quiet_within(self, seconds: float) -> None:
        """Until nobody is being served, or this many seconds have passed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.quiet()

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
        if self.is_stopping and (request.method == "POST" or request.path in HEALTH):
            self.turned_away += 1
            refused = error_response(STOPPING, request.path)
            refused.force_close()  # whoever asks again comes to the server that is there then
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
        """Remembers what went wrong; the words are ours, as the client was told them."""
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
