"""Servers inside a test's own process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def listening(server: web.Application | web.AppRunner) -> AsyncIterator[str]:
    """The address of an application, or of what runs it, on a free port of this machine while the context lasts."""
    runner = web.AppRunner(server, access_log=None) if isinstance(server, web.Application) else server
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
