"""A disk without room, as what writes a version says so, is told from any other failure."""

from __future__ import annotations

import errno

import pytest
from safetensors import SafetensorError

from openclaw_rl.trainers.worker import is_out_of_room


@pytest.mark.parametrize(
    ("problem", "is_room"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.EFBIG, "File too large"), True),
        (SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"), True),
        (OSError(errno.EACCES, "Permission denied"), False),
        (ValueError("too large"), False),
    ],
)
def test_room_is_what_is_lacking_where_the_disk_is_full(problem: Exception, *, is_room: bool) -> None:
    assert is_out_of_room(problem) is is_room
