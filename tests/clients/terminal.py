"""A program in a terminal of its own: what it shows is read, what a person types is written."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

CODES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|\r")


class Terminal:
    """A running program. `shown` is all that it has shown, without colours."""

    def __init__(self, command: list[str], *, cwd: Path, env: Mapping[str, str]) -> None:
        self._us, theirs = pty.openpty()
        ways = {**env, "TERM": "xterm", "COLUMNS": "200", "LINES": "60"}
        self._running = subprocess.Popen(
            command, cwd=cwd, env=ways, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        self.shown = ""

    def wait_for(self, words: str, *, timeout_s: float = 60.0) -> bool:
        """Whether these words have been shown since the last thing typed."""
        until = time.monotonic() + timeout_s
        while words not in self.shown[self._typed_at :]:
            if time.monotonic() > until or not self._read():
                return False
        return True

    _typed_at = 0

    def type(self, words: str) -> None:
        """Types a line, and the key that ends it."""
        self._read(0.2)
        self._typed_at = len(self.shown)
        os.write(self._us, words.encode() + b"\r")

    def interrupt(self) -> None:
        """What Ctrl-C does."""
        os.killpg(self._running.pid, signal.SIGINT)  # this terminal is not its controlling one

    def close(self) -> None:
        """Ends the program and all that it has started."""
        if self._running.poll() is None:
            os.killpg(self._running.pid, signal.SIGKILL)
        self._running.wait()
        os.close(self._us)

    def _read(self, wait_s: float = 0.5) -> bool:
        ready, _, _ = select.select([self._us], [], [], wait_s)
        if not ready:
            return self._running.poll() is None
        try:
            held = os.read(self._us, 65536)
        except OSError:  # the program has ended
            return False
        if b"\x1b[6n" in held:  # it asks where the cursor is
            os.write(self._us, b"\x1b[1;1R")
        self.shown += CODES.sub("", held.decode("utf-8", "replace"))
        return bool(held)
