"""Server-sent events, wherever the network cuts them."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

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
