from __future__ import annotations

import os
from pathlib import Path

import pytest

from openclaw_rl.errors import EngineError
from openclaw_rl.evals.server import serving


async def test_a_server_that_does_not_come_up_is_reported_with_its_last_words(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "no-such-model")
    with pytest.raises(EngineError, match=r"ended with code [12](.|\n)*no-such-model"):
        async with serving(tmp_path, model=nowhere, environment={**os.environ}):
            raise AssertionError("it came up")
