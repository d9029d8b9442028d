"""Work that is finished even where whoever waits for it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

Result = TypeVar("Result")


async def to_end(work: Coroutine[None, None, Result]) -> Result:
    """What the work gives. Where whoever waits is cancelled meanwhile, that rises once the work is over."""
    working, stopped = asyncio.ensure_future(work), None
    while not working.done():
        try:
            await asyncio.shield(working)
        except asyncio.CancelledError as cancelled:
            stopped = cancelled
    if stopped is not None:
        working.exception()  # it is of no use to anybody any more
        raise stopped
    return working.result()
