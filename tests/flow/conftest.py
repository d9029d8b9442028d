"""A judge that listens, and servers that are gone when their test is over."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from aiohttp import web
from flow_parts import Judging, Served
from forked_trainer import PLACE, trainers_ready

from openclaw_rl.testing.listening import listening

if TYPE_CHECKING:
    from forgetting_parts import Home


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """A command that ran in the test's own process leaves no handler behind: its stream is closed."""
    root = logging.getLogger()
    handlers, level = [*root.handlers], root.level
    yield
    for each in [*root.handlers]:
        if type(each) is logging.StreamHandler and each not in handlers:
            root.removeHandler(each)
    root.setLevel(level)


@pytest_asyncio.fixture
async def judging() -> AsyncIterator[Judging]:
    """The judge, listening."""
    judge = Judging()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", judge.answer)
    async with listening(app) as url:
        judge.url = f"{url}/v1"
        yield judge


@pytest.fixture
def running() -> Iterator[list[Served]]:
    """Servers a test started: whatever still runs at its end is ended."""
    servers: list[Served] = []
    yield servers
    for server in servers:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait(30)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model whose ids are bytes."""
    from forgetting_parts import tiny_model

    return tiny_model(tmp_path_factory.mktemp("model") / "bytes")


@pytest_asyncio.fixture
async def home(tmp_path: Path, model: Path) -> AsyncIterator[Home]:
    """An empty home on that model, in a folder below the test's own."""
    from forgetting_parts import make_home

    made = await make_home(tmp_path / "a", model)
    yield made
    await made.store.aclose()


@pytest.fixture(scope="session")
def forked_trainers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Trainers whose settings name the launcher of `forked_trainer` begin at once."""
    place = tmp_path_factory.mktemp("trainers") / "socket"
    with trainers_ready(place), pytest.MonkeyPatch.context() as patch:
        patch.setenv(PLACE, str(place))
        yield
