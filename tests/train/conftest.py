"""A flow of turns into steps for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from train_flow import Flow, flowing

from openclaw_rl.core.sample import Wants


@pytest.fixture
async def flow(tmp_path: Path) -> AsyncIterator[Flow]:
    """In the test's own folder, with the settings of most tests."""
    async with flowing(tmp_path) as made:
        yield made


@pytest.fixture
async def hinted(tmp_path: Path) -> AsyncIterator[Flow]:
    """The same for a method that learns from hints alone."""
    async with flowing(tmp_path, wants=Wants.HINT) as made:
        yield made
