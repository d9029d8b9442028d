"""Forgetting by a running server, while clients stream: what they notice of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from benchmarks.common import progress

CLIENTS = 4
KEY = "sk-forget"
START_S, BEFORE_S = 120.0, 8.0


@dataclass(slots=True)
class Watched:
    """What clients saw: streams that ended as they should and others, and the longest waits, in seconds."""

    whole: int = 0
    broken: list[str] = field(default_factory=list)
    token_s: float = 0.0  # between two events of a stream, its end included
    first_s: float = 0.0
    health_s: float = 0.0

    def anew(self) -> dict[str, object]:
        """The figures so far; waits are counted from nothing again."""
        found: dict[str, object] = {
            "streams": self.whole,
            "broken": len(self.broken),
            "longest_silence_s": round(self.token_s, 3),
            "longest_first_token_s": round(self.first_s, 3),
            "longest_healthz_s": round(self.health_s, 3),
        }
        self.whole, self.token_s, self.first_s, self.health_s = 0, 0.0, 0.0, 0.0
        return found


@contextlib.asynccontextmanager
async def serving(home: Path) -> AsyncIterator[str]:
    """The command's server on a folder; gives its URL."""
    home.joinpath("api_key").write_text(KEY + "\n", "utf-8")
    log = home.with_suffix(".log")
    server = _started(home, log)
    try:
        yield await _url(log, server)
    finally:
        server.send_signal(signal.SIGTERM)
        await asyncio.to_thread(server.wait)


async def forget_beside(home: Path, user: str) -> dict[str, object]:
    """The figures of clients before and while a user is forgotten by the command, and the certificate."""
    async with serving(home) as url, aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as session:
        seen = Watched()
        tasks = [asyncio.ensure_future(_streams(session, url, number, seen)) for number in range(CLIENTS)]
        tasks.append(asyncio.ensure_future(_health(session, url, seen)))
        try:
            await asyncio.sleep(BEFORE_S)
            before = seen.anew()
            began = time.monotonic()
            command = [sys.executable, "-m", "openclaw_rl", "forget", "--user", user, "--yes", "--home", str(home)]
            done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
            seconds = time.monotonic() - began
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    if done.returncode:
        raise SystemExit(f"forgetting beside the server failed: {done.stderr}")
    for line in seen.broken[:5]:
        progress(line)
    wait = re.findall(r"wrote the store anew seconds=([0-9.]+)", home.with_suffix(".log").read_text("utf-8"))
    return {
        "before": before,
        "while_forgetting": seen.anew(),
        "seconds": round(seconds, 1),
        "store_wait_s": [float(value) for value in wait],
        "rebuilt": len(json.loads(done.stdout)["rebuilt"]),
    }


def _started(home: Path, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "openclaw_rl", "serve", "--home", str(home), "--port", "0"]
    with log.open("wb") as out:
        return subprocess.Popen(command, stdout=out, stderr=out, env=os.environ | {"OMP_NUM_THREADS": "1"})


async def _url(log: Path, server: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and server.poll() is None:
        found = re.search(r"at (http://\S+)/v1", await asyncio.to_thread(log.read_text, "utf-8", "replace"))
        if found:
            return found[1]
        await asyncio.sleep(0.1)
    raise SystemExit(f"the server did not come up: {log}")


async def _streams(session: aiohttp.ClientSession, url: str, client: int, seen: Watched) -> None:
    number = 0
    while True:
        number += 1
        body = {
            "model": "default",
            "messages": [{"role": "user", "content": f"Client {client} asks for the {number}th time."}],
            "max_tokens": 200,
            "stream": True,
            "ignore_eos": True,
        }
        name = {"X-Session-Id": f"stream-{client}-{number}", "X-User-Id": f"client-{client}"}
        last, is_first, is_done = time.monotonic(), True, False
        try:
            async with session.post(f"{url}/v1/chat/completions", json=body, headers=name) as response:
                async for line in response.content:
                    now = time.monotonic()
                    if not line.strip():
                        continue
                    if is_first:
                        seen.first_s = max(seen.first_s, now - last)
                    else:
                        seen.token_s = max(seen.token_s, now - last)
                    last, is_first, is_done = now, False, b"[DONE]" in line
        except aiohttp.ClientError as problem:
            seen.broken.append(repr(problem))
            continue
        if is_done:
            seen.whole += 1
        else:
            seen.broken.append(f"stream {client}-{number} ended without its end ({response.status})")


async def _health(session: aiohttp.ClientSession, url: str, seen: Watched) -> None:
    while True:
        began = time.monotonic()
        async with session.get(f"{url}/healthz") as response:
            await response.read()
        seen.health_s = max(seen.health_s, time.monotonic() - began)
        await asyncio.sleep(0.02)
