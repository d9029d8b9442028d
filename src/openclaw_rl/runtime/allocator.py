"""Memory that was freed goes back to the system, and what stays for good is not looked through again and again.

The C library by itself keeps what was freed, for each thread apart: after some requests of ten thousand messages or a
megabyte that is hundreds of megabytes, which nobody else can use. And the collector of reference cycles goes through
every object there is: with torch loaded these are hundreds of thousands, and all streams stand still meanwhile.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys

EVERY_S = 10.0


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


async def giving_back(every_s: float = EVERY_S) -> None:
    """Gives memory back now and then, until cancelled."""
    can = True
    while can:
        await asyncio.sleep(every_s)
        can = await asyncio.to_thread(give_back)
