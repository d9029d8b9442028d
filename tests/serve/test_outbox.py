"""Which events share a write: those that come together, from the second burst on all of them; others wait for none."""

from __future__ import annotations

import asyncio

from aiohttp.test_utils import make_mocked_request

from openclaw_rl.serve.stream import Outbox
from openclaw_rl.testing.clock import Clock


class Wire(asyncio.Transport):
    """A connection that notes what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.held_bytes = 0
        self.is_gone = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return self.is_gone

    def get_write_buffer_size(self) -> int:
        return self.held_bytes

    def taken(self) -> list[bytes]:
        """The events of each write since the last look."""
        found, self.writes = [data.split(b"\r\n")[1] for data in self.writes], []
        return found


async def opened(clock: Clock) -> tuple[Outbox, Wire]:
    wire = Wire()
    request = make_mocked_request("POST", "/", transport=wire)
    outbox = Outbox(request, {}, max_buffer_bytes=100, stalled_s=1.0, now_s=clock)
    await outbox.open(b"first")
    clock.advance(1.0)
    return outbox, wire


async def test_events_that_come_alone_go_out_without_another_pass_of_the_loop() -> None:
    clock = Clock()
    outbox, wire = await opened(clock)
    for event in (b"one", b"two"):
        outbox.put(event)
        assert wire.taken() == [event]
        clock.advance(0.02)
    await asyncio.sleep(0)
    assert wire.taken() == []


async def test_a_burst_shares_a_write_and_the_next_one_from_its_first_event_on() -> None:
    clock = Clock()
    outbox, wire = await opened(clock)
    for expected in ([b"a", b"bc"], [b"abc"], [b"abc"]):
        for event in (b"a", b"b", b"c"):
            outbox.put(event)
        await asyncio.sleep(0)
        assert wire.taken() == expected
        clock.advance(0.02)
    for expected in ([b"x"], [b"x"]):  # one alone: what comes next need not wait any more
        outbox.put(b"x")
        await asyncio.sleep(0)
        assert wire.taken() == expected
        clock.advance(0.02)
    outbox.put(b"y")
    assert wire.taken() == [b"y"]


async def test_bursts_of_two_are_bursts() -> None:
    clock = Clock()
    outbox, wire = await opened(clock)
    for expected in ([b"a", b"b"], [b"ab"], [b"ab"]):
        outbox.put(b"a")
        outbox.put(b"b")
        await asyncio.sleep(0)
        assert wire.taken() == expected
        clock.advance(0.02)


async def test_a_client_that_lags_or_is_gone_is_noticed_with_the_event_that_came_alone() -> None:
    clock = Clock()
    outbox, wire = await opened(clock)
    wire.held_bytes = 101
    outbox.put(b"one")
    assert outbox.is_behind
    assert await outbox.drain()
    clock.advance(0.02)
    wire.is_gone = True
    outbox.put(b"two")
    assert outbox.is_behind and wire.taken() == [b"one"]
    assert not await outbox.drain()
