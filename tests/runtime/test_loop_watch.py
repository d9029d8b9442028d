"""The watch tells how late the loop came round, how long the interpreter was held, and what was going on."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from openclaw_rl.runtime.loop_watch import Delays, LoopWatch, RecentMaximum, watching
from openclaw_rl.testing.clock import Clock

HELD_S = 0.2


def hold_the_interpreter() -> None:
    """One call that gives nobody a turn; it takes some tenths of a second."""
    sum(range(20_000_000))


@contextmanager
def looking(watch: LoopWatch) -> Iterator[None]:
    thread = threading.Thread(target=watch.look)
    thread.start()
    try:
        yield
    finally:
        watch.stop()
        thread.join()


def test_the_longest_delay_is_forgotten_after_a_minute() -> None:
    clock = Clock()
    longest = RecentMaximum(clock)
    assert longest.seconds == 0.0
    begin = clock()
    for after_s, late_s, told in (
        (0, 0.5, 0.5),
        (0.1, 0.2, 0.5),
        (30, 0.3, 0.5),
        (59, 0.1, 0.5),
        (61, 0.1, 0.3),
        (95, 0, 0.1),
    ):
        clock.advance(begin + after_s - clock())
        longest.add(late_s)
        assert longest.seconds == told


async def test_a_loop_that_is_blocked_is_late_by_as_much() -> None:
    registry = CollectorRegistry()
    async with watching(registry) as watch:
        await asyncio.sleep(0)  # it begins to wait
        threading.Event().wait(HELD_S)  # nothing else may run on the loop meanwhile
        await asyncio.sleep(0.001)  # now the delay is counted
        assert watch.delays.loop_late_s > HELD_S / 2
        told = generate_latest(registry).decode()
    assert f"openclaw_rl_loop_late_longest_seconds {watch.delays.loop_late_s}" in told
    assert "openclaw_rl_interpreter_held_longest_seconds" in told
    assert 'openclaw_rl_loop_late_seconds_bucket{le="0.1"}' in told
    assert not [thread for thread in threading.enumerate() if thread.name == "loop-watch"]


def test_a_call_that_holds_the_interpreter_is_seen_from_another_thread() -> None:
    watch = LoopWatch(CollectorRegistry(), every_s=0.001)
    with looking(watch):
        hold_the_interpreter()
        while not watch.delays.interpreter_held_s:
            threading.Event().wait(0.01)
    assert watch.delays.interpreter_held_s > 0.05


def test_the_log_says_what_was_going_on(caplog: pytest.LogCaptureFixture) -> None:
    watch = LoopWatch(CollectorRegistry(), every_s=0.001, telling_s=0.02)
    caplog.set_level(logging.WARNING)
    with looking(watch):  # nobody beats: the loop is silent
        while not caplog.records:
            threading.Event().wait(0.01)
    assert len(caplog.records) == 1
    assert caplog.records[0].getMessage().startswith("the event loop has been silent for ")


def test_before_anything_was_seen_nothing_is_told() -> None:
    assert LoopWatch(CollectorRegistry()).delays == Delays(0.0, 0.0)
