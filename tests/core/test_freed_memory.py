from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/lib/x86_64-linux-gnu/libc.so.6").exists(), reason="needs glibc")
ANONYMOUS = """
from openclaw_rl.core.memory import give_back, map_large
def anonymous():
    lines = open('/proc/self/status').read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith('RssAnon'))
"""


def printed(script: str) -> int:
    """The number that a process of its own prints: how much the C library keeps depends on all that came before."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", ANONYMOUS + script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environment)
    return int(done.stdout)


@pytest.mark.parametrize(("parameters", "is_returned"), [(600_000_000, True), (2_000_000, False)])
def test_a_large_models_blocks_go_back_when_they_are_freed(parameters: int, is_returned: bool) -> None:
    """Otherwise glibc keeps a block that lies below a small one."""
    script = (
        "import ctypes\n"
        f"assert map_large({parameters}) is {is_returned}\n"
        "libc = ctypes.CDLL(None); libc.malloc.restype = ctypes.c_void_p; libc.free.argtypes = [ctypes.c_void_p]\n"
        "first = libc.malloc(30 << 20); libc.free(first)\n"  # glibc takes it as a sign that such blocks come and go
        "block = libc.malloc(20 << 20); ctypes.memset(ctypes.c_void_p(block), 1, 20 << 20)\n"
        "above = [libc.malloc(1000) for _ in range(100)]\n"
        "before = anonymous(); libc.free(block); print(before - anonymous())"
    )
    assert (printed(script) > 15_000) is is_returned  # of 20,480 KiB


def test_what_was_freed_goes_back_to_the_system() -> None:
    script = (
        "held = [bytes(100_000) for _ in range(1000)]\n"  # below the size that is mapped by itself
        "kept = held[-1]; del held\n"  # at the top of the heap, so that it cannot shrink
        "before = anonymous(); give_back(); print(before - anonymous())"
    )
    assert printed(script) > 40_000  # of 100,000 KiB
