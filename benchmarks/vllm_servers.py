"""What `benchmarks.vllm` measures on: a vLLM of its own, our server before it or alone, and streams through each."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from openclaw_rl.engines.remote.replica import Replica, launched, new_launch
from openclaw_rl.engines.remote.vllm import Vllm
from openclaw_rl.engines.settings import RemoteSettings
from openclaw_rl.evals.server import serving

START_S = 900.0
RANK = 32  # as a trainer's adapters have by default
VERSIONS = 8
WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
FROM_VLLM = """
[engine]
kind = "vllm"
max_rows = 64
[engine.remote]
urls = ["{url}"]
api_key = "{key}"
{more}
"""
ALONE = """
[engine]
threads = {threads}
max_rows = 32
dtype = "{dtype}"
"""


@dataclass(frozen=True, slots=True)
class Target:
    """Where chat completions are asked for. `base_url` ends in `/v1`."""

    base_url: str
    key: str
    model: str
    pid: int


@dataclass(frozen=True, slots=True)
class Stream:
    """One streamed answer: tokens as the server counts them, seconds to the first and to the last, and the longest
    time after the first in which nothing came.
    """

    tokens: int
    first_s: float
    all_s: float
    silent_s: float
    prompt_tokens: int


@asynccontextmanager
async def vllm_alone(python: str, model: Path, *, dtype: str, context: int, threads: int) -> AsyncIterator[Target]:
    """A vLLM with adapters, as this project starts it. Raises EngineError where it does not come up."""
    options = ("--enforce-eager", "--dtype", dtype, "--max-model-len", str(context + 1))
    remote = RemoteSettings(python=python, options=options, start_s=START_S)
    os.environ |= {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "OMP_NUM_THREADS": str(threads),
    }
    launch = new_launch(remote, model, rank=RANK, versions=VERSIONS)
    replica: Replica = launched(Vllm(), remote, {}, launch)
    try:
        await replica.start()
        yield Target(f"{replica.http.url}/v1", launch.key, "base", replica.pid)
    finally:
        await replica.aclose()


@asynccontextmanager
async def gateway(folder: Path, model: Path, vllm: Target, *options: str, more: str = "") -> AsyncIterator[Target]:
    """Our server, which asks that vLLM; `more` are settings of `engine.remote`."""
    url = vllm.base_url.removesuffix("/v1")
    async with _served(folder, model, FROM_VLLM.format(url=url, key=vllm.key, more=more), *options) as target:
        yield target


@asynccontextmanager
async def copied(vllm: Target) -> AsyncIterator[Target]:
    """That vLLM behind a process that only copies bytes."""
    port = vllm.base_url.rpartition(":")[2].removesuffix("/v1")
    command = (sys.executable, "-m", "benchmarks.vllm_copy", port)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None
        own = int(await process.stdout.readline())
        yield Target(f"http://127.0.0.1:{own}/v1", vllm.key, vllm.model, process.pid)
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def local_engine(folder: Path, model: Path, *, threads: int, dtype: str) -> AsyncIterator[Target]:
    """Our server with the local engine."""
    async with _served(folder, model, ALONE.format(threads=threads, dtype=dtype), "--no-learn") as target:
        yield target


@asynccontextmanager
async def _served(folder: Path, model: Path, config: str, *options: str) -> AsyncIterator[Target]:
    (folder / "home").mkdir(parents=True)
    (folder / "config.toml").write_text(config)
    own = {"OMP_NUM_THREADS": "1"}
    async with serving(
        folder / "home",
        model=str(model),
        config=folder / "config.toml",
        options=options,
        environment=own,
        start_s=START_S,
    ) as server:
        yield Target(server.base_url, server.key, "default", server.pid)


def cpu_s(target: Target) -> float:
    """Seconds of CPU that a server's processes have had so far: all of its session."""
    total = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            held = path.read_text().rpartition(")")[2].split()
            if int(held[3]) == target.pid:
                total += int(held[11]) + int(held[12])
    return total / os.sysconf("SC_CLK_TCK")


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Meanwhile this thread, and every process that it starts, has this core alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def stopped(target: Target) -> Iterator[None]:
    """Meanwhile the processes of a server do not run at all: an idle vLLM looks for work now and then."""
    os.killpg(target.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(target.pid, signal.SIGCONT)


async def speed(
    http: aiohttp.ClientSession, target: Target, *, width: int, count: int, number: int
) -> tuple[float, float]:
    """Tokens a second of so many streams at once, and the mean of their longest times in which nothing came."""
    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        rows = [group.create_task(stream(http, target, count=count, number=100 * number + row)) for row in range(width)]
    all_s = time.perf_counter() - begin
    return sum(row.result().tokens for row in rows) / all_s, sum(row.result().silent_s for row in rows) / width


async def stream(http: aiohttp.ClientSession, target: Target, *, count: int, number: int, words: int = 0) -> Stream:
    """One answer of exactly so many tokens, log-probabilities with it, to a prompt of its own with so many words more.

    Raises aiohttp's errors, and ValueError.
    """
    drawn = random.Random(number)
    text = "".join(f" {drawn.choice(WORDS)}" for _ in range(words))
    body = {
        "model": target.model,
        "messages": [{"role": "user", "content": f"Tell me a long story about the number {number}.{text}"}],
        "max_tokens": count,
        "temperature": 1.0,
        "ignore_eos": True,
        "logprobs": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    begin, first_s, last_s, silent_s, tail = time.perf_counter(), 0.0, 0.0, 0.0, b""
    headers = {"Authorization": f"Bearer {target.key}"}
    async with http.post(f"{target.base_url}/chat/completions", json=body, headers=headers) as answer:
        answer.raise_for_status()
        async for data in answer.content.iter_any():  # as little work as can be: the client shares the cores
            tail = tail[-4096:] + data
            now_s = time.perf_counter() - begin
            if first_s:
                silent_s = max(silent_s, now_s - last_s)
            elif b'"logprob"' in tail:
                first_s = now_s
            last_s = now_s
    events = [json.loads(line[6:]) for line in tail.split(b"\n") if line.startswith(b'data: {"')]
    usage = next((event["usage"] for event in reversed(events) if event.get("usage")), None)
    if usage is None:
        raise ValueError(f"{target.base_url} ended an answer without its usage: {tail[-300:]!r}")
    return Stream(usage["completion_tokens"], first_s, last_s, silent_s, usage["prompt_tokens"])
