"""Server-sent events, wherever the network cuts them, and which connections are used again."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from openclaw_rl.engines.remote import http as remote_http
from openclaw_rl.engines.remote.http import ServerHttp

SENT = b'data: {"a": "\xc3\xa9"}\n\n: a comment\n\ndata: {"b": 2}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize("size", [1, 2, 3, 7, 30, 1000])
async def test_events_come_whole_however_they_are_cut(size: int) -> None:
    async def route(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for at in range(0, len(SENT), size):
            await answer.write(SENT[at : at + size])
        return answer

    app = web.Application()
    app.router.add_post("/events", route)
    async with TestServer(app) as server:
        http = ServerHttp(str(server.make_url("/")))
        found = [data.strip() async for data in http.events("/events", {})]
        await http.aclose()
    assert found == ['{"a": "é"}'.encode(), b'{"b": 2}']


@pytest.mark.parametrize(("idle_s", "opened"), [(60.0, 1), (0.05, 2)])
async def test_a_connection_that_was_idle_too_long_is_not_used_again(
    idle_s: float, opened: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers close such a one of themselves, and a request that meets the closing is answered by nobody."""
    monkeypatch.setattr(remote_http, "IDLE_S", idle_s)
    seen = set()

    async def route(request: web.Request) -> web.Response:
        seen.add(request.transport)
        return web.json_response({})

    app = web.Application()
    app.router.add_get("/", route)
    async with TestServer(app) as server:
        http = ServerHttp(str(server.make_url("/")))
        for _ in range(2):
            await http.get("/")
            await asyncio.sleep(0.2)
        await http.aclose()
    assert len(seen) == opened
