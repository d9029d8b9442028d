"""Memory that was freed goes back to the system: the C library by itself keeps it, for each thread apart.

After some requests of ten thousand messages or a megabyte that is hundreds of megabytes, which nobody else can use.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys

EVERY_S = 10.0


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
