"""A block of a prompt, and the key under which its segment keeps what is needed to find and check it again."""

from __future__ import annotations

import re
from dataclasses import dataclass

from openclaw_rl.core.hashing import hashed

Run = tuple[int, int]  # messages[start:stop]; empty for what a template writes by itself
_KEY = re.compile(r"(\d+)-(\d+)(?: sampled (\d+)-(\d+))? ([0-9a-f]{32})\Z")


@dataclass(frozen=True, slots=True)
class PromptBlock:
    """What a template writes for a run of messages, and the added token that the text in front of it ends with.

    `after` is empty where the block begins with an added token itself. One of the two always holds, so that encoding
    block by block gives what encoding the whole gives.
    """

    run: Run
    text: str
    after: str

    @property
    def digest(self) -> str:
        """Equal for equal text in an equal place."""
        return hashed((self.after, "\0", self.text))


@dataclass(frozen=True, slots=True)
class BlockKey:
    """What a segment's key tells: its messages and the digest of the template's own text for them.

    `sampled` is set where the ids are not that text's but those of a served reply: how many ids of opening are in front
    of what was sampled, and how many after it.
    """

    run: Run
    digest: str
    sampled: tuple[int, int] | None = None

    def __str__(self) -> str:
        """The key as it is in a segment."""
        told = "" if self.sampled is None else f" sampled {self.sampled[0]}-{self.sampled[1]}"
        return f"{self.run[0]}-{self.run[1]}{told} {self.digest}"


def read_key(key: str) -> BlockKey | None:
    """What the key tells, or None for a key of another kind."""
    found = _KEY.match(key)
    if found is None:
        return None
    start, stop, opening, ending, digest = found.groups()
    sampled = None if opening is None else (int(opening), int(ending))
    return BlockKey((int(start), int(stop)), str(digest), sampled)
