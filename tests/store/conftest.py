"""A store for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from openclaw_rl.store.db import Store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """An empty one, in the test's own folder."""
    opened = await Store.open(tmp_path)
    yield opened
    await opened.aclose()
