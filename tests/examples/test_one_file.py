"""The example is run as a newcomer runs it, only shorter."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_the_example_tells_its_story_and_adopts_the_wish() -> None:
    command = [sys.executable, "examples/one_file.py", "--sessions", "8", "--measured", "24"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    found = dict(re.findall(r"^(before|after) +version \d+: (\d+) of 24 follow the wish", done.stdout, re.MULTILINE))
    assert int(found["before"]) <= 6
    assert int(found["after"]) >= 18
    for words in ("session 1, version 0", "student", "judge", "hint:"):
        assert words in done.stdout
