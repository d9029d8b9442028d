"""Memory that large requests took is the system's again once they are over."""

from __future__ import annotations

import subprocess
import sys

import pytest

# 160 MB in small blocks, made in four threads at once, as the tokens of long prompts are; of each 100 one stays.
SCRIPT = """
import threading
from concurrent.futures import ThreadPoolExecutor
from openclaw_rl.core.memory import give_back
def rss_bytes():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
def work(_):
    held = [bytes(2000 + at % 7) for at in range(20_000)]
    at_once.wait()
    return held[::100]
at_once = threading.Barrier(4)
with ThreadPoolExecutor(4) as pool:
    before = rss_bytes()
    stays = list(pool.map(work, range(4)))
    if not give_back():
        print("none")
    else:
        print(rss_bytes() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the C library's call is one of Linux's")
def test_what_threads_have_freed_does_not_stay_with_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60)
    if done.stdout.strip() == "none":
        pytest.skip("another C library")
    assert int(done.stdout) < 40_000_000  # of 160 MB; 1.6 MB stay


COLLECTING = """
import gc
from openclaw_rl.runtime.serving import set_aside
held = [[[] for _ in range(100)] for _ in range(1000)]  # what a program has loaded
looked = []
gc.callbacks.append(lambda phase, info: looked.append(len(gc.get_objects())) if phase == "start" else None)
gc.collect()
count = set_aside()
looked.clear()
ring = []
ring.append(ring)
del ring
found = gc.collect()
print(count > 100_000, looked[0] < 1000, found)
"""


def test_what_is_loaded_is_not_looked_at_again_and_what_comes_later_is_collected() -> None:
    told = subprocess.run([sys.executable, "-c", COLLECTING], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["True", "True", "1"]
