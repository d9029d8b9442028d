"""The command told to stop while it streams: no stream is cut, nobody new is taken, every turn told of is kept."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import time
from pathlib import Path

import aiohttp
import pytest
from flow_parts import Served, headers, start

STREAMS, TOKENS = 3, 500
ASKED = {
    "model": "default",
    "messages": [{"role": "user", "content": "Tell me a long story."}],
    "max_tokens": TOKENS,
    "ignore_eos": True,  # so that no answer ends before its length
    "stream": True,
    "stream_options": {"include_usage": True},
}


async def _begun(http: aiohttp.ClientSession, url: str, **more: int) -> aiohttp.ClientResponse:
    answer = await http.post(f"{url}/v1/chat/completions", json=ASKED | more, headers=headers())
    assert answer.status == 200
    await answer.content.readuntil(b"\n\n")
    return answer


def _end_of(stream: bytes) -> tuple[str, int]:
    """Why a stream that is whole ended, and of how many tokens it was."""
    *_, last, usage, done = stream.decode().strip().split("\n\n")
    assert done == "data: [DONE]"
    (choice,), counts = json.loads(last[6:])["choices"], json.loads(usage[6:])["usage"]
    return choice["finish_reason"], counts["completion_tokens"]


async def _said(server: Served, words: str) -> None:
    until = time.monotonic() + 30
    while words not in (told := await asyncio.to_thread(server.log.read_text, "utf-8", "replace")):
        assert time.monotonic() < until, told[-2000:]
        await asyncio.sleep(0.01)


async def test_no_stream_is_cut_and_whoever_comes_is_told_to_come_again(tmp_path: Path, running: list[Served]) -> None:
    server = start(tmp_path / "home", "--no-learn")
    running.append(server)
    async with aiohttp.ClientSession() as http:
        begun = [await _begun(http, server.url) for _ in range(STREAMS)]
        server.process.send_signal(signal.SIGTERM)
        await _said(server, "finishing what is being answered")
        async with http.post(f"{server.url}/v1/chat/completions", json=ASKED, headers=headers()) as refused:
            assert (refused.status, refused.headers["Retry-After"]) == (503, "2")
        ends = await asyncio.gather(*(answer.read() for answer in begun))
    assert [_end_of(end) for end in ends] == [("length", TOKENS)] * STREAMS
    assert server.process.wait(60) == 0
    with sqlite3.connect(server.home / "store.db") as store:
        kept = {row[0] for row in store.execute("SELECT id FROM turns")}
    assert {answer.headers["x-openclaw-rl-turn"] for answer in begun} <= kept


async def test_what_is_not_finished_in_time_is_cut_off_and_kept(tmp_path: Path, running: list[Served]) -> None:
    server = start(tmp_path / "home", "--no-learn", config="[serve]\nfinish_s = 0.05\n")
    running.append(server)
    async with aiohttp.ClientSession() as http:
        begun = await _begun(http, server.url, max_tokens=8000)  # seconds of work, however quick the machine is
        server.process.send_signal(signal.SIGTERM)
        with pytest.raises(aiohttp.ClientError):
            await begun.read()
        begun.close()
    assert server.process.wait(60) == 0
    with sqlite3.connect(server.home / "store.db") as store:
        [(turn,)] = store.execute("SELECT id FROM turns WHERE reason = 'cancelled'").fetchall()
    assert turn == begun.headers["x-openclaw-rl-turn"]


async def test_a_second_signal_leaves_at_once(tmp_path: Path, running: list[Served]) -> None:
    server = start(tmp_path / "home", "--no-learn")
    running.append(server)
    async with aiohttp.ClientSession() as http:
        begun = await _begun(http, server.url)
        server.process.send_signal(signal.SIGINT)
        await _said(server, "finishing what is being answered")
        server.process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(server.process.wait, 30) == 130
        begun.close()
