"""Rows that ended stay in the cache, found again by version and tokens, until room is needed: least used first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.engines.local.blocks import Block

Ids = npt.NDArray[np.int32]


@dataclass(slots=True, eq=False)
class CachedPrefix:
    """A row that ended: `tokens` are those whose keys and values its block holds."""

    version: PolicyVersion
    tokens: Ids
    block: Block
    used: int


def ids(tokens: list[int] | tuple[int, ...]) -> Ids:
    """Token ids in the form that prefixes are compared in."""
    return np.array(tokens, dtype=np.int32)


def shared(left: Ids, right: Ids) -> int:
    """How many leading ids are the same."""
    size = min(len(left), len(right))
    differs = left[:size] != right[:size]
    first = int(differs.argmax()) if size else 0
    return first if size and differs[first] else size


class Prefixes:
    """What is kept. The base model is one version, whatever scope it was asked for under."""

    def __init__(self) -> None:
        self._kept: list[CachedPrefix] = []
        self._clock = 0

    @property
    def tokens(self) -> int:
        """Tokens kept."""
        return sum(len(item.tokens) for item in self._kept)

    def keep(self, version: PolicyVersion, tokens: Ids, block: Block) -> list[Block]:
        """Keeps a row; returns the blocks of rows that it makes needless, being whole prefixes of it."""
        needless = [
            item for item in self._kept if item.version == version and shared(item.tokens, tokens) == len(item.tokens)
        ]
        for item in needless:
            self._kept.remove(item)
        self._clock += 1
        self._kept.append(CachedPrefix(version, tokens, block, self._clock))
        return [item.block for item in needless]

    def find(self, version: PolicyVersion, tokens: Ids) -> tuple[CachedPrefix | None, int]:
        """What shares the longest prefix with these tokens under this version, and how long it is."""
        best: CachedPrefix | None = None
        longest = 0
        for item in self._kept:
            if item.version == version:
                length = shared(item.tokens, tokens)
                if length > longest:
                    best, longest = item, length
        if best is not None:
            self._clock += 1
            best.used = self._clock
        return best, longest

    def take(self, item: CachedPrefix) -> Block:
        """Hands a kept row's block over."""
        self._kept.remove(item)
        return item.block

    def oldest(self, *, but: CachedPrefix | None = None) -> CachedPrefix | None:
        """What was used least lately, `but` not counted."""
        return min((item for item in self._kept if item is not but), key=lambda item: item.used, default=None)

    def forget_all(self) -> list[Block]:
        """Drops everything; returns the blocks."""
        gone, self._kept = self._kept, []
        return [item.block for item in gone]

    def forget(self, version: PolicyVersion) -> list[Block]:
        """Drops all rows of a version; returns their blocks."""
        gone = [item for item in self._kept if item.version == version]
        self._kept = [item for item in self._kept if item.version != version]
        return [item.block for item in gone]
