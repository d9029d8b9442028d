"""A collector for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from conversation import Served, serving


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """On a store in the test's own folder."""
    async with serving(tmp_path) as made:
        yield made
