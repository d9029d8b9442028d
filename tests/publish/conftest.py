"""A flow of versions for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from publish_doubles import Flow, flowing


@pytest.fixture
async def flow(tmp_path: Path) -> AsyncIterator[Flow]:
    """In the test's own folder, with the settings of most tests."""
    async with flowing(tmp_path) as made:
        yield made
