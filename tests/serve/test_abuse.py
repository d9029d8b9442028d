"""Clients that are slow, broken or hostile: each gets a clear answer or is cut off, and nobody else notices."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
import pytest
from serve_doubles import Serving, serving

from openclaw_rl.core.completion import Finish
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.serve.settings import ServeSettings
from openclaw_rl.store.db import Store

CHAT = "/v1/chat/completions"
HEAD = f"POST {CHAT} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer secret\r\n"
USER = {"role": "user", "content": "hello"}


@asynccontextmanager
async def _line(server: Serving, sent: bytes) -> AsyncIterator[asyncio.StreamReader]:
    """A connection on which these bytes, and no others, were sent."""
    port = int(server.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        await writer.drain()
        yield reader
    finally:
        writer.close()


async def _asked(server: Serving, body: object) -> tuple[int, dict[str, dict[str, object]]]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Authorization": "Bearer secret"}
    async with aiohttp.ClientSession() as session, session.post(server.url + CHAT, data=data, headers=headers) as got:
        return got.status, await got.json()


async def _is_well(server: Serving) -> None:
    """Nothing is in flight, and the next request is answered."""
    assert server.parts.metrics.registry.get_sample_value("openclaw_rl_in_flight") == 0
    server.says("fine")
    status, body = await _asked(server, {"messages": [USER]})
    assert (status, body["choices"][0]["message"]["content"]) == (200, "fine")  # type: ignore[index]


async def test_headers_that_never_end_are_hung_up_on(renderer: ChatRenderer, store: Store) -> None:
    async with serving(renderer, store, settings=ServeSettings(keepalive_s=0.1)) as server:
        async with _line(server, HEAD.encode()) as reader:
            assert await reader.read() == b""
        await _is_well(server)


async def test_a_body_that_does_not_come_is_answered_408(renderer: ChatRenderer, store: Store) -> None:
    async with serving(renderer, store, settings=ServeSettings(body_s=0.1)) as server:
        async with _line(server, f'{HEAD}Content-Length: 1000\r\n\r\n{{"messages'.encode()) as reader:
            assert (await reader.readline()).startswith(b"HTTP/1.1 408")
            assert b'"body_too_slow"' in await reader.readuntil(b"}}")
        await _is_well(server)


async def test_a_body_too_large_is_refused_before_it_is_sent(server: Serving) -> None:
    async with _line(server, f"{HEAD}Content-Length: 100000000\r\n\r\n".encode()) as reader:
        assert (await reader.readline()).startswith(b"HTTP/1.1 413")
    await _is_well(server)


async def test_a_body_without_an_end_is_refused_when_it_has_become_too_large(
    renderer: ChatRenderer, store: Store
) -> None:
    async with serving(renderer, store, settings=ServeSettings(max_body_bytes=4096)) as server:
        chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
        async with _line(server, f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode() + 3 * chunk) as reader:
            assert (await reader.readline()).startswith(b"HTTP/1.1 413")
        await _is_well(server)


BODY = json.dumps({"messages": [USER]}).encode()


@pytest.mark.parametrize(
    "headers",
    [
        f"Content-Length: {len(BODY)}\r\nTransfer-Encoding: chunked",
        f"Content-Length: {len(BODY)}\r\nContent-Length: 5",
        "Transfer-Encoding: chunked, identity",
        f"Content-Length: +{len(BODY)}",
        f"Content-Length : {len(BODY)}",
    ],
)
async def test_a_request_of_two_lengths_is_refused_and_its_connection_closed(server: Serving, headers: str) -> None:
    async with _line(server, f"{HEAD}{headers}\r\n\r\n".encode() + BODY + b"GET /healthz HTTP/1.1\r\n\r\n") as reader:
        answer = await reader.read()  # to the end: the connection is closed, and what follows is no request
    assert b" 400 " in answer.partition(b"\r\n")[0]
    assert answer.count(b"HTTP/1.") == 1
    assert not server.book.arrivals
    await _is_well(server)


async def test_chunks_that_are_none_are_refused(server: Serving) -> None:
    async with _line(server, f"{HEAD}Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n".encode()) as reader:
        assert b" 400 " in await reader.readline()
    await _is_well(server)


async def test_a_client_that_reads_nothing_is_cut_off_and_its_turn_kept_as_cancelled(
    renderer: ChatRenderer, store: Store
) -> None:
    settings = ServeSettings(max_buffer_bytes=8192, stalled_s=0.2)
    async with serving(
        renderer, store, settings=settings, change=lambda parts: replace(parts, context_length=100_000)
    ) as server:
        server.says_ids(renderer.encode("hello ") * 20_000)
        body = json.dumps({"messages": [USER], "stream": True, "logprobs": True}).encode()
        with socket.socket() as line:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(line, ("127.0.0.1", int(server.url.rpartition(":")[2])))
            await loop.sock_sendall(line, f"{HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            turn = await server.book.committed.get()
        assert turn.completion.finish is Finish.CANCELLED
        assert 0 < len(turn.completion.tokens) < 20_000
        assert await server.given.get() == len(turn.completion.tokens)
        await _is_well(server)


async def test_a_history_of_ten_thousand_messages_is_answered(renderer: ChatRenderer, store: Store) -> None:
    talk = [{"role": ("user", "assistant")[at % 2], "content": f"word {at}"} for at in range(9_999)]
    async with serving(renderer, store, change=lambda parts: replace(parts, context_length=1_000_000)) as server:
        server.says("long")
        status, _ = await _asked(server, {"messages": talk})
        assert status == 200
    async with serving(renderer, store) as server:  # 1024 tokens
        status, body = await _asked(server, {"messages": talk})
        assert (status, body["error"]["code"]) == (400, "context_length_exceeded")
        await _is_well(server)


DEEP = b"[" * 100_000 + b"]" * 100_000
REFUSED = [
    b'{"messages": [{"role": "user", "content": "x"}], "metadata": %b}' % DEEP,
    b'{"messages": [{"role": "user", "content": "x"}], "metadata": %b}' % (b"[" * 200 + b"]" * 200),
    b'{"messages": %b}' % DEEP,
    b'{"m\x82ssages": 1}',
    b'{"messages": [{"role": "user", "content": "\xff"}]}',
]


@pytest.mark.parametrize("body", REFUSED, ids=("deep", "too deep to walk", "deep messages", "key", "text"))
async def test_bodies_that_cannot_be_read_are_refused_in_words(server: Serving, body: bytes) -> None:
    status, answer = await _asked(server, body)
    assert status == 400
    assert answer["error"]["code"] in ("invalid_json", "invalid_type")
    await _is_well(server)


async def test_half_a_surrogate_pair_anywhere_in_the_body_is_taken(server: Serving) -> None:
    server.says("fine")
    status, _ = await _asked(server, b'{"messages": [{"role": "user", "content": "x"}], "metadata": {"a": "\\ud83d"}}')
    assert status == 200


async def test_arguments_nested_without_end_are_text(server: Serving) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "[" * 50_000}}
    server.says("fine")
    talk = [USER, {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "content": "1"}]
    status, _ = await _asked(server, {"messages": talk})
    assert status in (200, 400)
    server.answers.clear()
    await _is_well(server)
