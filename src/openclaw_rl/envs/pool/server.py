"""Runs a pool server."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import signal
import ssl
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from openclaw_rl.envs.box.running import one_error
from openclaw_rl.envs.pool.journal import Journal
from openclaw_rl.envs.pool.pool import Pool, PoolOptions
from openclaw_rl.envs.pool.routes import app_of
from openclaw_rl.errors import ConfigError

log = logging.getLogger(__name__)


async def serve_pool(
    folder: Path,
    tasks: tuple[str, ...],
    options: PoolOptions,
    *,
    key: str,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
    drain_s: float = 30.0,
    announce: Callable[[str], None] = lambda url: None,
) -> None:
    """Serves until SIGTERM or Ctrl-C: then it gives out nothing more, and leases have `drain_s` to end.

    A second signal ends them at once. ConfigError for an address that others can reach without a key, StoreError and
    DiskError for a folder that cannot be used, BoxError if no boxes can be made.
    """
    if not key and not _is_loopback(host):
        raise ConfigError(f"{host} can be reached by others, and there is no key", fix="give a key")
    journal = Journal(folder)
    try:
        with one_error():
            async with asyncio.TaskGroup() as group:
                pool = Pool(journal, tasks, options)
                await pool.start(group)
                try:
                    await _served(
                        pool, app_of(pool, key), host=host, port=port, tls=tls, drain_s=drain_s, announce=announce
                    )
                finally:
                    await pool.aclose()
    finally:
        journal.close()


async def _served(
    pool: Pool,
    app: web.Application,
    *,
    host: str,
    port: int,
    tls: ssl.SSLContext | None,
    drain_s: float,
    announce: Callable[[str], None],
) -> None:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
        announce(f"{'https' if tls else 'http'}://{_bracketed(host)}:{runner.addresses[0][1]}")
        await _stopped(pool, drain_s)
    except OSError as problem:
        raise ConfigError(f"{host}:{port} cannot be listened on: {problem}", fix="choose another port") from problem
    finally:
        await runner.cleanup()


async def _stopped(pool: Pool, drain_s: float) -> None:
    """Waits for a signal, then until every lease has ended, the time is over, or a second signal comes."""
    loop, asked = asyncio.get_running_loop(), asyncio.Queue[None]()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.put_nowait, None)
    await asked.get()
    log.info("stopping: %d leases are open; they have %.0f s to end", len(pool.leases), drain_s)
    await pool.drain(is_on=True)
    empty, again = loop.create_task(pool.emptied()), loop.create_task(asked.get())
    await asyncio.wait({empty, again}, timeout=drain_s, return_when=asyncio.FIRST_COMPLETED)
    for task in (empty, again):
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    return False


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
