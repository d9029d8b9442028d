"""A server asked to stop: what was begun is finished, who comes is told to come again, nothing takes forever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web

from openclaw_rl.runtime.activity import Activity
from openclaw_rl.testing.listening import listening


@dataclass
class Answering:
    """A handler that answers in two pieces, the second one when it is told to."""

    activity: Activity = field(default_factory=Activity)
    url: str = ""
    go: asyncio.Event = field(default_factory=asyncio.Event)
    ended: list[str] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one ")
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.ended.append("cut off")
            raise
        await response.write(b"two")
        await response.write_eof()
        self.ended.append("whole")
        return response


@asynccontextmanager
async def _answering() -> AsyncIterator[Answering]:
    made = Answering()
    app = web.Application(middlewares=[made.activity.middleware])
    app.router.add_post("/answer", made.handle)
    app.router.add_get("/healthz", made.handle)
    app.router.add_get("/health", made.handle)
    async with listening(web.AppRunner(app, handler_cancellation=True, access_log=None)) as made.url:
        yield made


async def test_a_stream_is_finished_and_whoever_comes_meanwhile_is_told_to_come_again() -> None:
    async with _answering() as server, aiohttp.ClientSession() as http:
        begun = await http.post(f"{server.url}/answer")
        assert await begun.content.readany() == b"one "
        stopping = asyncio.ensure_future(server.activity.finished(60.0))
        await asyncio.sleep(0)
        for method, path in (("POST", "/answer"), ("GET", "/healthz"), ("GET", "/health")):
            async with http.request(method, server.url + path) as refused:
                assert (refused.status, refused.headers["Retry-After"]) == (503, "2")
                assert refused.headers["Connection"] == "close"
                assert (await refused.json())["error"]["code"] == "stopping"
        assert not stopping.done()
        server.go.set()
        assert await begun.read() == b"two"
        assert await stopping == 0
        assert (server.ended, server.activity.turned_away) == (["whole"], 3)


async def test_a_client_that_keeps_asking_on_its_connection_does_not_hold_up_the_end() -> None:
    async with _answering() as server, aiohttp.ClientSession() as http:
        server.go.set()
        async with http.post(f"{server.url}/answer") as before:
            assert await before.read() == b"one two"
        server.activity.stop()
        for _ in range(3):
            async with http.post(f"{server.url}/answer") as refused:
                assert refused.status == 503
        assert await server.activity.finished(60.0) == 0


async def test_what_takes_longer_than_the_bound_is_cut_off() -> None:
    async with _answering() as server, aiohttp.ClientSession() as http:
        begun = await http.post(f"{server.url}/answer")
        assert await begun.content.readany() == b"one "
        assert await server.activity.finished(0.01) == 1
        assert (server.ended, server.activity.is_idle) == (["cut off"], True)
        with pytest.raises(aiohttp.ClientError):
            await begun.read()
        begun.close()
