"""Connections have a bound: one too many is told to come again, and a place that is free is taken again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from openclaw_rl.serve.door.limits import Door

ASKED = b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"


async def _hello(request: web.Request) -> web.Response:
    return web.Response(text="hello")


@asynccontextmanager
async def _listening(most: int) -> AsyncIterator[tuple[Door, int]]:
    app = web.Application()
    app.router.add_get("/", _hello)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    assert runner.server is not None
    door = Door(runner.server, most)
    listener = await asyncio.get_running_loop().create_server(door, "127.0.0.1", 0)
    try:
        yield door, listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        await runner.cleanup()


async def _answer(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(ASKED)
        return await reader.read()
    finally:
        writer.close()


async def test_one_connection_too_many_is_told_to_come_again_and_a_free_place_is_taken() -> None:
    async with _listening(2) as (door, port):
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for _, writer in idle:  # one is silent, one never ends its request
            writer.write(b"GET / HTTP/1.1\r\n")
        refused = await _answer(port)
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nRetry-After: 2\r\n" in refused
        assert b'"too_many_connections"' in refused
        head, _, body = refused.partition(b"\r\n\r\n")
        assert b"Content-Length: %d" % len(body) in head
        assert (door.open, door.refused) == (2, 1)
        idle[0][1].write(b"Host: test\r\nConnection: close\r\n\r\n")
        assert (await idle[0][0].read()).endswith(b"hello")  # and it is closed
        assert (await _answer(port)).endswith(b"hello")
        for _, writer in idle:
            writer.close()
