"""How a command is passed to a box."""

from __future__ import annotations

from collections.abc import Sequence

from openclaw_rl.envs.box.sandbox import MOST_COMMAND_BYTES
from openclaw_rl.errors import BoxError

SHELL_WORDS = ("/bin/bash", "--noprofile", "--norc")


def words_of(command: str | Sequence[str]) -> list[str]:
    """The argument list to start; text is run by bash."""
    words = ["/bin/bash", "-c", command] if isinstance(command, str) else list(command)
    size = max((len(word.encode("utf-8", "surrogateescape")) for word in words), default=0)
    if not words or size > MOST_COMMAND_BYTES:
        raise BoxError(
            f"a command of {size} bytes cannot be started", fix="write a long script to a file in the box first"
        )
    if any("\0" in word for word in words):
        raise BoxError("a command contains a zero byte", fix="leave it out")
    return words
