"""Passes records to a process that writes them elsewhere, without making the caller wait.

Libraries that report to other programs take seconds to import, block the interpreter and wait for networks. So each
has its own process, fed by its own thread from a bounded queue. Records are dropped if the queue is full, and
counted.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from openclaw_rl.core.message import Json
from openclaw_rl.core.pipe import is_readable
from openclaw_rl.telemetry.records import Record

log = logging.getLogger(__name__)
MOST_WAITING, MOST_AT_ONCE = 1000, 256
OK = "ok"


@dataclass(frozen=True, slots=True)
class FeedLimits:
    """Time limits of a sink, in seconds: to open, to answer, before a restart, and at the end."""

    open_s: float = 120.0
    answer_s: float = 60.0
    pause_s: float = 10.0
    close_s: float = 5.0
    most_waiting: int = MOST_WAITING


@dataclass(frozen=True, slots=True)
class FeedStatus:
    """How many records were taken by the sink, were dropped, and wait; `problem` is the last, empty if all is well."""

    name: str
    sent: int
    dropped: int
    waiting: int
    problem: str


class SinkFeeder:
    """Feeds one sink. `command` starts its process, which is given `options` first."""

    def __init__(
        self, name: str, command: Sequence[str], options: Mapping[str, Json], *, limits: FeedLimits | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self._command = list(command)
        self._options = options
        self._environment = environment
        self._limits = limits or FeedLimits()
        # dropped if it is full; `dropped` counts it
        self._queue: queue.Queue[Record | None] = queue.Queue(self._limits.most_waiting)
        self._sent = self._dropped = 0
        self._problem = ""
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        # `close` joins it for a while; a daemon, so that a hanging sink does not keep the program from ending
        self._thread = threading.Thread(target=self._run, name=f"sink-{name}", daemon=True)
        self._thread.start()

    @property
    def status(self) -> FeedStatus:
        """The present status."""
        return FeedStatus(self.name, self._sent, self._dropped, self._queue.qsize(), self._problem)

    def put(self, record: Record) -> None:
        """Queues the record, or drops it if too many wait. Returns at once."""
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            self._drop(1)

    def close(self) -> None:
        """Lets the sink take waiting records for a few seconds at most, then ends its process. Blocks."""
        self._stopping.set()
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            self._drop(0)
        self._thread.join(self._limits.close_s)
        if self._thread.is_alive():
            self._end(kill=True)
            self._thread.join(1.0)

    def _run(self) -> None:
        while True:
            batch, is_last = self._next()
            if batch and not self._delivered(batch):
                self._drop(len(batch))
            if is_last:
                self._end(kill=False)
                return

    def _next(self) -> tuple[list[Record], bool]:
        """The waiting records, at least one; and whether they are the last."""
        batch: list[Record] = []
        item = self._queue.get()
        while item is not None:
            batch.append(item)
            if len(batch) == MOST_AT_ONCE or self._queue.empty():
                return batch, self._stopping.is_set() and self._queue.empty()
            item = self._queue.get()
        return batch, True

    def _delivered(self, batch: list[Record]) -> bool:
        while not self._is_open():
            if self._stopping.wait(self._limits.pause_s):
                return False
        problem = self._asked(batch, self._limits.answer_s)
        if problem is None:
            self._end(kill=True)
            return False
        if problem:
            self._note(problem)
            return False
        self._sent += len(batch)
        if self._problem:
            log.info("sink=%s takes records again dropped=%d", self.name, self._dropped)
            self._problem = ""
        return True

    def _is_open(self) -> bool:
        """Whether the process runs and its sink is open; starts it if it does not."""
        if self._process is not None and self._process.poll() is None:
            return True
        self._end(kill=True)
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **(self._environment or {})},
                start_new_session=True,  # the server handles Ctrl-C
            )
        except OSError as problem:
            self._note(str(problem))
            return False
        problem_said = self._asked(self._options, self._limits.open_s)
        if problem_said == "":
            return True
        if problem_said:
            self._note(problem_said)
        self._end(kill=True)
        return False

    def _asked(self, message: Json | Mapping[str, Json] | list[Record], limit_s: float) -> str | None:
        """The problem that the process reports, empty for none; None if it died or said nothing in time."""
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            self._note("its process has ended")
            return None
        try:
            said = _line(process.stdout, limit_s)
        except (OSError, ValueError):  # it was closed meanwhile
            said = ""
        if said is None:
            self._note(f"it did not answer within {limit_s:g} s")
        elif not said:
            self._note("its process has ended; see the server's log")
        elif said != OK:
            return said
        return "" if said == OK else None

    def _end(self, *, kill: bool) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            try:
                process.stdin.close()
            except OSError:
                kill = True
        if kill:
            process.kill()
        try:
            process.wait(self._limits.close_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def _drop(self, count: int) -> None:
        if count and not self._dropped:
            log.warning("sink=%s is too slow or does not work: records for it are dropped and counted", self.name)
        self._dropped += count

    def _note(self, problem: str) -> None:
        if not self._problem:
            log.warning("sink=%s does not take records: %s", self.name, problem)
        self._problem = problem[:300]


def _line(stream: IO[bytes], limit_s: float) -> str | None:
    """The next line without its end; empty if the stream has ended, None if none came in time."""
    if not is_readable(stream.fileno(), limit_s):
        return None
    return stream.readline().decode("utf-8", "replace").strip()
