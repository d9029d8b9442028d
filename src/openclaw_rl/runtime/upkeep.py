"""Done now and then while serving: old turns are erased, unneeded weights removed, and freed memory given back."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from openclaw_rl.errors import StoreError
from openclaw_rl.publish.pruning import Pruning
from openclaw_rl.store.db import Store

log = logging.getLogger(__name__)
DAY_S = 86_400.0
LOOK_EVERY_S = 3600.0
# The C library keeps what was freed, for each thread apart. After some requests of ten thousand messages or a megabyte
# that is hundreds of megabytes, which nobody else can use.
GIVE_BACK_EVERY_S = 10.0


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


async def retaining(store: Store, keep_days: float) -> None:
    """Looks at once and then every hour. Runs until cancelled."""
    while True:
        try:
            await retain(store, keep_days)
        except StoreError as problem:  # the disk may have room again at the next look
            log.warning("what is too old could not be erased: %s", problem)
        await asyncio.sleep(LOOK_EVERY_S)


def set_aside() -> int:
    """What is loaded by now is never collected, nor looked at by the collector; gives how many objects that are."""
    gc.collect()
    gc.freeze()
    return gc.get_freeze_count()


def give_back() -> bool:
    """Gives back what is free; False where the C library cannot. Takes milliseconds; other threads go on."""
    if sys.platform != "linux":
        return False
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except AttributeError:  # not glibc
        return False
    return bool(trim(0) >= 0)


async def giving_back(every_s: float = GIVE_BACK_EVERY_S) -> None:
    """Gives memory back now and then, until cancelled."""
    can = True
    while can:
        await asyncio.sleep(every_s)
        can = await asyncio.to_thread(give_back)
