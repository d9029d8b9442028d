"""The process may open as many files as there are to be connections, or says with how many it makes do."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

SCRIPT = """
import resource, logging
logging.basicConfig(level=logging.WARNING)
from openclaw_rl.serve.door.limits import room_for
resource.setrlimit(resource.RLIMIT_NOFILE, (200, {hard}))
print(room_for(300), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(
    ("hard", "wanted", "is_told"),
    [(1000, "300 428", False), (250, "122 250", True)],  # 128 are kept for what is no connection
)
def test_the_bound_is_raised_as_far_as_the_system_allows(hard: int, wanted: str, is_told: bool) -> None:
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert allowed == resource.RLIM_INFINITY or allowed >= hard
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(hard=hard)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == wanted
    assert ("connections=122 instead of 300" in done.stderr) is is_told
