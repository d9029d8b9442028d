from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def test_what_was_freed_goes_back_to_the_system() -> None:
    """In a process of its own: how much the C library keeps depends on all that was allocated before."""
    if not Path("/lib/x86_64-linux-gnu/libc.so.6").exists() or sys.platform != "linux":
        pytest.skip("needs glibc")
    script = (
        "from openclaw_rl.core.memory import give_back\n"
        "def anonymous():\n"
        "    lines = open('/proc/self/status').read().splitlines()\n"
        "    return next(int(line.split()[1]) for line in lines if line.startswith('RssAnon'))\n"
        "held = [bytes(100_000) for _ in range(1000)]\n"  # below the size that is mapped by itself
        "kept = held[-1]; del held\n"  # at the top of the heap, so that it cannot shrink
        "before = anonymous(); give_back(); print(before - anonymous())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) > 40_000  # of 100,000 KiB
