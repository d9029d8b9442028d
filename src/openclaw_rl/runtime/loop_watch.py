"""Measures how late the server's event loop runs and how long the interpreter is held, and by whom.

The loop measures its own delay: every stream waits as long. A separate thread measures how late it gets the
interpreter back, which one call into a library may hold while it runs in any thread. If other programs take the
processors, both are late as well.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

log = logging.getLogger(__name__)
EVERY_S = 0.02  # both measure at this interval
TELLING_S = 0.25  # from this delay on, the log says what was running
QUIET_S = 10.0  # at most this often
WINDOW_S = 60  # the longest delay is taken over this many seconds
_BUCKETS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_PACKAGE = Path(__file__).parents[1]
_SHOWN = 4  # of our own functions, innermost first


@dataclass(frozen=True, slots=True)
class Delays:
    """The longest delays of the last minute, in seconds."""

    loop_late_s: float = 0.0
    interpreter_held_s: float = 0.0


class RecentMaximum:
    """The longest of the delays seen in the last minute. One thread writes, others may read."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_second: deque[tuple[int, float]] = deque(maxlen=WINDOW_S)

    def add(self, late_s: float) -> None:
        """One more delay."""
        second = int(self._clock())
        if self._by_second and self._by_second[-1][0] == second:
            late_s = max(late_s, self._by_second.pop()[1])
        self._by_second.append((second, late_s))

    @property
    def seconds(self) -> float:
        """The longest; 0.0 if there was none."""
        since = int(self._clock()) - WINDOW_S
        return max((late_s for second, late_s in tuple(self._by_second) if second > since), default=0.0)


class LoopWatch(Collector):
    """Watches the loop it runs on; made by `watching`."""

    def __init__(self, registry: CollectorRegistry, *, every_s: float = EVERY_S, telling_s: float = TELLING_S) -> None:
        self._every_s, self._telling_s = every_s, telling_s
        self._loop_late = Histogram(
            "openclaw_rl_loop_late_seconds",
            "How late the event loop came round.",
            buckets=_BUCKETS,
            registry=registry,
        )
        self._held = Histogram(
            "openclaw_rl_interpreter_held_seconds",
            "How late a thread got the interpreter back.",
            buckets=_BUCKETS,
            registry=registry,
        )
        registry.register(self)
        self._longest_late, self._longest_held = RecentMaximum(), RecentMaximum()
        self._beat_s = time.monotonic()
        self._told_s = float("-inf")
        self._stop = threading.Event()
        self._loop_thread = threading.get_ident()

    @property
    def delays(self) -> Delays:
        """The longest of the last minute."""
        return Delays(self._longest_late.seconds, self._longest_held.seconds)

    def collect(self) -> Iterable[Metric]:
        """The longest delays of the last minute, for Prometheus."""
        now = self.delays
        for name, what, value in (
            ("loop_late", "The longest delay of the event loop in the last minute.", now.loop_late_s),
            ("interpreter_held", "The longest hold of the interpreter in the last minute.", now.interpreter_held_s),
        ):
            yield GaugeMetricFamily(f"openclaw_rl_{name}_longest_seconds", what, value=value)

    async def beat(self) -> None:
        """Counts the loop's own delays until cancelled."""
        while True:
            due_s = time.monotonic() + self._every_s
            await asyncio.sleep(self._every_s)
            self._beat_s = time.monotonic()
            late_s = max(0.0, self._beat_s - due_s)
            self._longest_late.add(late_s)
            self._loop_late.observe(late_s)

    def look(self) -> None:
        """Counts how long the interpreter was held, and logs what blocks the loop, until `stop`. Blocks."""
        self._beat_s = time.monotonic()
        while True:
            due_s = time.monotonic() + self._every_s
            if self._stop.wait(self._every_s):
                return
            now_s = time.monotonic()
            held_s = max(0.0, now_s - due_s)
            self._longest_held.add(held_s)
            self._held.observe(held_s)
            silent_s = now_s - self._beat_s - self._every_s
            if max(held_s, silent_s) >= self._telling_s and now_s - self._told_s >= QUIET_S:
                self._told_s = now_s
                self._tell(held_s, silent_s)

    def stop(self) -> None:
        """Ends `look`."""
        self._stop.set()

    def _tell(self, held_s: float, silent_s: float) -> None:
        frames = sys._current_frames()  # the only access to another thread's stack
        own = threading.get_ident()
        doing = {
            thread.name: ours
            for thread in threading.enumerate()
            if thread.ident is not None and thread.ident != own and thread.ident in frames
            if (ours := list(_ours(frames[thread.ident])))
        }
        log.warning(
            "the event loop has been silent for %.0f ms, the interpreter was held for %.0f ms; just now: %s",
            1000 * max(0.0, silent_s),
            1000 * held_s,
            "; ".join(f"{name}: {' < '.join(ours)}" for name, ours in doing.items()) or "nothing of ours",
        )


@asynccontextmanager
async def watching(registry: CollectorRegistry) -> AsyncIterator[LoopWatch]:
    """A watch on the running loop, with its metrics in the registry; task and thread end on leaving."""
    watch = LoopWatch(registry)
    beating = asyncio.create_task(watch.beat())
    thread = threading.Thread(target=watch.look, name="loop-watch", daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        beating.cancel()
        watch.stop()
        await asyncio.gather(beating, return_exceptions=True)
        await asyncio.to_thread(thread.join)


def _ours(frame: FrameType | None) -> Iterator[str]:
    """The innermost functions of this package on a stack, as file:line function."""
    shown = 0
    while frame is not None and shown < _SHOWN:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(_PACKAGE):
            shown += 1
            yield f"{path.relative_to(_PACKAGE)}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
