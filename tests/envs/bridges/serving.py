"""A program that serves on a free port of this machine, started and ended."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from openclaw_rl.evals.server import free_port

STARTS_S = 90.0


@contextlib.contextmanager
def serving(script: Path, *words: str, python: str = sys.executable) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Its address, once it takes connections, and its process."""
    port = free_port()
    process = subprocess.Popen([python, str(script), *words, str(port)])
    try:
        until = time.monotonic() + STARTS_S
        while not _answers(port):
            assert process.poll() is None and time.monotonic() < until, f"{script.name} does not serve"
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
