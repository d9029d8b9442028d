"""Memory that was freed but that the C library keeps."""

from __future__ import annotations

import ctypes
import os
import sys

LARGE = 4 << 20  # bytes
MANY = 100_000_000  # parameters: with fewer, mapping pages costs a few per cent of a pass, and little memory is kept
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h


def map_large(parameters: int) -> bool:
    """From now on each block of 4 MiB and more is mapped by itself, so freeing it returns it to the system.

    False for a small model, if the C library cannot, or if the environment says from which size it maps. Left to
    itself, glibc raises that size up to 32 MiB, and a pass's buffers then lie on a heap with holes: reading two prompts
    of 760 tokens with 720 M weights in 4 bits took up to 730 MiB more than before them, and 390 with this.
    """
    if parameters < MANY or sys.platform != "linux" or "MALLOC_MMAP_THRESHOLD_" in os.environ:
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGE) and mallopt(M_TRIM_THRESHOLD, 2 * LARGE))


def give_back() -> bool:
    """Returns free memory; False if the C library cannot. Takes milliseconds; other threads continue.

    Loading a model of 26 M weights left 90 to 120 MiB behind.
    """
    if sys.platform != "linux":
        return False
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except AttributeError:  # not glibc
        return False
    return bool(trim(0) >= 0)
