"""A server on a free port over a scripted engine, a real store and a tokenizer trained on the spot."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from serve_doubles import Serving, a_renderer, serving

from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.store.db import Store


@pytest.fixture(scope="session")
def renderer() -> ChatRenderer:
    return a_renderer()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await Store.open(tmp_path)
    yield opened
    await opened.aclose()


@pytest.fixture
async def server(renderer: ChatRenderer, store: Store) -> AsyncIterator[Serving]:
    async with serving(renderer, store) as made:
        yield made


@pytest.fixture
async def client(server: Serving) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="secret", max_retries=0) as made:
        yield made


@pytest.fixture
async def claude(server: Serving) -> AsyncIterator[AsyncAnthropic]:
    async with AsyncAnthropic(base_url=server.url, api_key="secret", max_retries=0) as made:
        yield made


@pytest.fixture
async def http(server: Serving) -> AsyncIterator[aiohttp.ClientSession]:
    """A program with the owner's key."""
    async with aiohttp.ClientSession(server.url, headers={"Authorization": "Bearer secret"}) as made:
        yield made
