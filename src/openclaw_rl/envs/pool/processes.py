"""Finds and ends processes that a killed server or worker left behind; start times identify them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from pathlib import Path

from openclaw_rl.envs.pool.journal import KeptWorker

LOOK_S = 0.05


def started_at(pid: int) -> str | None:
    """When a process started: the machine's start and clock ticks since; None if there is no such process."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        words = Path("/proc", str(pid), "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if words[0] in (b"Z", b"X") else f"{boot} {words[19].decode()}"


def ended(worker: KeptWorker, *, within_s: float) -> bool:
    """Ends a process left behind and its boxes without isolation; returns whether it had to be killed. Blocks."""
    until = time.monotonic() + within_s
    while started_at(worker.pid) == worker.started and time.monotonic() < until:
        time.sleep(LOOK_S)
    was_there = started_at(worker.pid) == worker.started
    if was_there:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)
        while started_at(worker.pid) == worker.started:
            time.sleep(LOOK_S)
    if worker.place:
        _end_plain(worker.place)
    return was_there


def _end_plain(place: str) -> None:
    """Ends the commands whose home is in a folder of boxes without isolation, and removes the folder."""
    mark = f"HOME={place}/".encode()
    while found := [pid for pid in _pids() if mark in _environment(pid)]:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(LOOK_S)
    shutil.rmtree(place, ignore_errors=True)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and started_at(int(name)) is not None]


def _environment(pid: int) -> bytes:
    try:
        return Path("/proc", str(pid), "environ").read_bytes()
    except OSError:
        return b""
