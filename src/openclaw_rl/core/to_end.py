"""Work that is finished even if its caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

Result = TypeVar("Result")


async def to_end(work: Coroutine[None, None, Result]) -> Result:
    """The result of the work. If the caller is cancelled meanwhile, that is raised after the work is done."""
    working, stopped = asyncio.ensure_future(work), None
    while not working.done():
        try:
            await asyncio.shield(working)
        except asyncio.CancelledError as cancelled:
            stopped = cancelled
    if stopped is not None:
        working.exception()  # no one needs it any more
        raise stopped
    return working.result()
