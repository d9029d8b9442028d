"""Pool servers for the tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from pool_servers import Server, Starter

from openclaw_rl.envs.pool.client import PoolClient


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for the tests that leave it as it was."""
    server = Server(tmp_path_factory.mktemp("shared") / "pool", options={"ttl_s": 20.0})
    server.start()
    assert server.url, server.log
    yield server
    assert server.stop() == 0, server.log


@pytest.fixture
async def client(shared: Server) -> AsyncIterator[PoolClient]:
    """A client of that server."""
    async with shared.client() as made:
        yield made


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Starter]:
    """Starts servers of a test's own; all are gone at the end."""
    made: list[Server] = []

    async def start(name: str = "pool", **given: object) -> Server:
        server = Server(tmp_path / name, **given)  # type: ignore[arg-type]
        made.append(server)
        await asyncio.to_thread(server.start)
        assert server.url, server.log
        return server

    yield start
    for server in made:
        server.stop()
