"""Tokens a second over HTTP: the product's own server as a process, driven by streams of chat completions."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import median

import aiohttp

from benchmarks.common import is_quick, progress
from openclaw_rl.evals.server import free_port

KEY = "bench"
START_S = 120.0


def bundled_model() -> Path | None:
    """The bundled model's folder, where it is there."""
    found = importlib.util.find_spec("openclaw_rl")
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent / "tiny" / "weights"
    return folder if (folder / "config.json").is_file() else None


async def http_tokens_per_s(
    widths: tuple[int, ...], *, model: Path | None = None, count: int = 128
) -> dict[str, float] | None:
    """Tokens a second by width, or None where the server cannot be started. `model` defaults to the bundled one."""
    model = model or bundled_model()
    if model is None or importlib.util.find_spec("openclaw_rl.__main__") is None:
        progress("no server to measure over HTTP")
        return None
    repeats = 2 if is_quick() else 5
    speeds: dict[str, float] = {}
    async with (
        serving(model, "--no-learn") as url,
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as http,
    ):
        if not url:
            progress("the server did not start")
            return None
        try:
            for width in widths:
                runs = [await _speed(http, url, width, count) for _ in range(repeats + 1)]
                speeds[str(width)] = round(median(runs[1:]), 1)
                progress(f"width {width} over HTTP: {speeds[str(width)]} tokens/s")
        except* aiohttp.ClientError as error:
            progress(f"the server does not stream: {error.exceptions[0]}")
            speeds = {}
    return speeds or None


@contextlib.asynccontextmanager
async def serving(model: Path, *options: str) -> AsyncIterator[str]:
    """The address of a server on this model, or "" where it does not come up; ended on leaving."""
    port = free_port()
    with tempfile.TemporaryDirectory() as home:
        command = ["serve", "--model", str(model), "--home", home, "--host", "127.0.0.1", "--port", str(port)]
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "openclaw_rl", *command, "--api-key", KEY, *options, stdout=sys.stderr
        )
        try:
            url = f"http://127.0.0.1:{port}"
            yield url if await _is_up(url, child) else ""
        finally:
            if child.returncode is None:
                child.terminate()
            await child.wait()


async def _is_up(url: str, child: asyncio.subprocess.Process) -> bool:
    until = time.monotonic() + START_S
    async with aiohttp.ClientSession() as http:
        while time.monotonic() < until and child.returncode is None:
            with contextlib.suppress(aiohttp.ClientError):
                async with http.get(f"{url}/healthz") as answer:
                    if answer.status == 200:
                        return True
            await asyncio.sleep(0.2)
    return False


async def _speed(http: aiohttp.ClientSession, url: str, width: int, count: int) -> float:
    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        streams = [group.create_task(_stream(http, url, row, count)) for row in range(width)]
    return sum(stream.result() for stream in streams) / (time.perf_counter() - begin)


async def _stream(http: aiohttp.ClientSession, url: str, row: int, count: int) -> int:
    """Completion tokens of one streamed answer, as the server counts them."""
    body = {
        "model": "default",
        "messages": [{"role": "user", "content": f"Tell me a long story about the number {row}."}],
        "max_tokens": count,
        "temperature": 3.0,  # so flat that hardly an answer ends before its length: the bundled model is brief
        "logprobs": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    tokens = 0
    async with http.post(f"{url}/v1/chat/completions", json=body) as answer:
        answer.raise_for_status()
        async for line in answer.content:
            if line.startswith(b"data: {"):
                usage = json.loads(line[6:]).get("usage")
                tokens = usage["completion_tokens"] if usage else tokens
    return tokens
