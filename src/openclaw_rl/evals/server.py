"""A server of our own for one run: a child process on a free port, with a new key."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from openclaw_rl.errors import EngineError

START_S = 180.0
STOP_S = 20.0
LOG_LINES = 15  # shown if a server does not start


@dataclass(frozen=True, slots=True)
class Server:
    """Where a running server is. `base_url` ends in `/v1`; `pid` is the process that was started."""

    base_url: str
    key: str
    home: Path
    log: Path
    pid: int


@asynccontextmanager
async def serving(
    home: Path,
    *,
    model: str,
    config: Path | None = None,
    options: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
    start_s: float = START_S,
) -> AsyncIterator[Server]:
    """Runs `openclaw-rl serve` on a folder that exists. Raises EngineError if it is not up after `start_s`."""
    port, key, log = free_port(), secrets.token_hex(16), home / "server.log"
    command = [sys.executable, "-m", "openclaw_rl", "serve", "--model", model]
    command += ["--home", str(home), "--host", "127.0.0.1", "--port", str(port), *options]
    command += [] if config is None else ["--config", str(config)]
    with log.open("wb") as out:
        # A new session: Ctrl-C reaches only us, and we stop the server after the last request.
        child = await asyncio.create_subprocess_exec(
            *command,
            stdout=out,
            stderr=out,
            start_new_session=True,
            env={**os.environ, **(environment or {}), "SGLANG_API_KEY": key},
        )
        server = Server(f"http://127.0.0.1:{port}/v1", key, home, log, child.pid)
        try:
            await _until_up(child, server, start_s)
            yield server
        finally:
            await _stop(child)


async def _until_up(child: asyncio.subprocess.Process, server: Server, start_s: float) -> None:
    until = time.monotonic() + start_s
    health = server.base_url.removesuffix("/v1") + "/healthz"
    async with aiohttp.ClientSession() as client:
        while child.returncode is None and time.monotonic() < until:
            try:
                async with client.get(health) as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.2)
    tail = "\n".join(server.log.read_text("utf-8", "replace").splitlines()[-LOG_LINES:])
    state = "has not started in time" if child.returncode is None else f"ended with code {child.returncode}"
    raise EngineError(f"the server {state}; its last output:\n{tail}")


async def _stop(child: asyncio.subprocess.Process) -> None:
    if child.returncode is not None:
        return
    child.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_S):
            await child.wait()
    except TimeoutError:
        child.kill()
        await child.wait()


def free_port() -> int:
    """A port of this machine on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
