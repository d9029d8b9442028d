"""Waiting for what a child says, with file descriptors of any number."""

from __future__ import annotations

import fcntl
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from openclaw_rl.core.pipe import is_readable


@contextmanager
def a_pipe(*, least: int) -> Iterator[tuple[int, int]]:
    """Its reading end, numbered `least` or higher, and its writing end."""
    read, write = os.pipe()
    high = fcntl.fcntl(read, fcntl.F_DUPFD_CLOEXEC, least)
    os.close(read)
    try:
        yield high, write
    finally:
        os.close(high)
        os.close(write)


@pytest.mark.parametrize("least", [3, 1024])
def test_a_descriptor_of_any_number_is_waited_for(least: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard <= least:
        pytest.skip(f"this machine allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * least), hard))
    try:
        with a_pipe(least=least) as (read, write):
            assert not is_readable(read, 0)
            os.write(write, b"x")
            assert is_readable(read, 10)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_end_of_the_other_side_counts_as_readable() -> None:
    read, write = os.pipe()
    os.close(write)
    assert is_readable(read, 10)
    os.close(read)
