"""Erases what is older than `store.keep_days`, once an hour, in pieces between which others get their turn, and the
weights of versions that nobody needs any more.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress

from openclaw_rl.errors import StoreError
from openclaw_rl.publish.pruning import Pruning
from openclaw_rl.store.db import Store

log = logging.getLogger(__name__)
DAY_S = 86_400.0
LOOK_EVERY_S = 3600.0


async def retain(store: Store, keep_days: float, *, now_s: Callable[[], float] = time.time) -> int:
    """One look: how many turns were erased. 0 days keep everything."""
    if not keep_days:
        return 0
    erased = 0
    while count := await store.erase_older(now_s() - keep_days * DAY_S):
        erased += count
    went = await store.pictures.sweep()
    if erased:
        log.info("erased turns=%d pictures=%d older_than_days=%g", erased, went, keep_days)
    return erased


async def prune(pruning: Pruning) -> None:
    """Removes weights that are not kept, at once, after each version that leaves the gate, and every hour.

    Runs until cancelled. What cannot be removed now is tried again at the next look.
    """
    while True:
        pruning.due.clear()
        try:
            await pruning.once()
        except (StoreError, OSError) as problem:
            log.warning("versions that are not needed could not be pruned: %s", problem)
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_EVERY_S):
                await pruning.due.wait()


async def run(store: Store, keep_days: float) -> None:
    """Looks at once and then every hour. Runs until cancelled."""
    while True:
        try:
            await retain(store, keep_days)
        except StoreError as problem:  # the disk may have room again at the next look
            log.warning("what is too old could not be erased: %s", problem)
        await asyncio.sleep(LOOK_EVERY_S)
