"""math-verify in separate processes, each with a limit on its time and memory."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from enum import StrEnum
from pathlib import Path

from openclaw_rl.core.pipe import is_readable
from openclaw_rl.envs.answers import inside_verify

START_S = 60.0
KEPT = ("PATH", "LANG", "HOME", "PYTHONPATH", "LD_LIBRARY_PATH")


class MathVerdict(StrEnum):
    """The checker's result for a pair of answers."""

    SAME = "same"
    OTHER = "other"
    TIMEOUT = "took too long and was stopped"
    DIED = "died"  # it needed too much memory, or crashed
    MISSING = "math-verify is not installed"
    BROKEN = "cannot be started"


class MathChecker:
    """Checks pairs, at most `at_once` at a time. Its processes start with the first pair and end with this object."""

    def __init__(self, *, timeout_s: float = 5.0, at_once: int = 1, most_characters: int = 1_000) -> None:
        self._timeout_s = timeout_s
        self._most_characters = most_characters
        self._free = threading.BoundedSemaphore(at_once)
        self._idle: list[_Worker] = []

    async def check(self, said: str, right: str) -> MathVerdict:
        """Whether two answers are mathematically the same. A very long answer counts as different."""
        if len(said) > self._most_characters:
            return MathVerdict.OTHER
        return await asyncio.to_thread(self._check, said, right)

    def _check(self, said: str, right: str) -> MathVerdict:
        with self._free:
            worker = self._idle.pop() if self._idle else _Worker()
            verdict = worker.ask([said, right], timeout_s=self._timeout_s)
            if verdict in (MathVerdict.SAME, MathVerdict.OTHER):
                self._idle.append(worker)
            else:
                worker.close()
            return verdict


class _Worker:
    """One process."""

    def __init__(self) -> None:
        environment = {name: os.environ[name] for name in KEPT if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(Path(inside_verify.__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=tempfile.gettempdir(),
            start_new_session=True,
        )
        self._end = weakref.finalize(self, _end, self._process)
        self._started = self._line(START_S)

    def ask(self, pair: list[str], *, timeout_s: float) -> MathVerdict:
        """The result for a pair."""
        if self._started != "ready":
            return MathVerdict.MISSING if self._started == "missing" else MathVerdict.BROKEN
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(pair).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return MathVerdict.DIED
        line = self._line(timeout_s)
        if line is None:
            return MathVerdict.TIMEOUT
        return MathVerdict(line) if line in (MathVerdict.SAME, MathVerdict.OTHER) else MathVerdict.DIED

    def _line(self, timeout_s: float) -> str | None:
        """The next line; empty if it ended, None if it took too long."""
        assert self._process.stdout is not None
        fd, until, read = self._process.stdout.fileno(), time.monotonic() + timeout_s, b""
        while not read.endswith(b"\n"):
            if not is_readable(fd, until - time.monotonic()):
                return None
            piece = os.read(fd, 1 << 12)
            if not piece:
                return ""
            read += piece
        return read.decode().strip()

    def close(self) -> None:
        """Ends the process."""
        self._end()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()
    process.wait()
