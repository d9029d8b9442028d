"""How many questions learning asks at a time: few while users wait, more while nobody does."""

from __future__ import annotations

import asyncio

import pytest

from openclaw_rl.core.width import BUSY, IDLE, TOKENS, Width


@pytest.mark.parametrize(
    ("is_idle", "most", "tokens", "width"),
    [
        (False, IDLE, 0, BUSY),
        (True, IDLE, 0, IDLE),
        (True, IDLE, TOKENS // IDLE, IDLE),
        (True, IDLE, TOKENS // 4, 4),
        (True, IDLE, 10 * TOKENS, BUSY),
        (True, 1, 0, BUSY),
        (True, 3, 0, 3),
    ],
)
def test_it_is_wide_only_while_nobody_waits_and_prompts_are_short(
    is_idle: bool, most: int, tokens: int, width: int
) -> None:
    assert Width(lambda: is_idle, most).now(tokens) == width


async def test_answers_come_in_the_order_of_what_was_asked_and_never_more_at_a_time_than_it_says() -> None:
    running = most = 0

    async def ask(item: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001 * (item % 3))
        running -= 1
        return -item

    assert await Width(lambda: True, 5).each(range(20), ask) == [-item for item in range(20)]
    assert most == 5


async def test_nothing_more_is_begun_than_a_busy_server_has_room_for_once_somebody_asks() -> None:
    asked, is_idle, go_on = list[int](), True, asyncio.Event()

    async def ask(item: int) -> None:
        asked.append(item)
        await go_on.wait() if item < IDLE else await asyncio.sleep(0)

    running = asyncio.ensure_future(Width(lambda: is_idle).each(range(20), ask))
    await asyncio.sleep(0.01)
    assert len(asked) == IDLE
    is_idle = False
    go_on.set()
    for _ in range(5):
        await asyncio.sleep(0)
        assert sum(item >= IDLE for item in asked) <= 20 - IDLE
    await running
    assert asked == list(range(20))


async def test_what_fails_ends_the_others_and_begins_no_more() -> None:
    asked, ended = list[int](), list[int]()

    async def ask(item: int) -> None:
        asked.append(item)
        if item == 1:
            raise OSError("away")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append(item)
            raise

    with pytest.raises(OSError, match="away"):
        await Width(lambda: True, 3).each(range(9), ask)
    await asyncio.sleep(0)
    assert (asked, ended) == ([0, 1, 2], [0, 2])
