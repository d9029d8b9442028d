"""Tasks for the tests of shells."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.envs.tasks.source import TaskSource
from openclaw_rl.envs.tasks.sources import find_sources

EXAMPLES = Path(__file__).parent.parent.parent.parent / "examples" / "tasks"


@pytest.fixture
def code() -> TaskSource:
    """One function to repair."""
    return find_sources(EXAMPLES / "code")[0]
