"""Where rows lie in the cache: blocks of 2^n tokens in pairs, so that rows of a size are neighbours."""

from __future__ import annotations

import bisect
from dataclasses import dataclass

UNIT = 256  # tokens of the smallest block


@dataclass(frozen=True, slots=True)
class Block:
    """The tokens `base` up to `base + size` of the arena."""

    base: int
    size: int


def block_size(tokens: int) -> int:
    """The smallest block that holds so many tokens."""
    size = UNIT
    while size < tokens:
        size *= 2
    return size


class BlockAllocator:
    """A buddy allocator over an arena: lowest address first, so that running rows lie together."""

    def __init__(self, tokens: int, largest: int) -> None:
        self._free: dict[int, list[int]] = {}
        self._largest = largest
        base, size = 0, largest
        while size >= UNIT:
            while tokens - base >= size:
                self._free.setdefault(size, []).append(base)
                base += size
            size //= 2
        self.total = base

    def take(self, tokens: int) -> Block | None:
        """A block for so many tokens, or None where none is free."""
        wanted = block_size(tokens)
        size = wanted
        while not self._free.get(size):
            size *= 2
            if size > self._largest:
                return None
        base = self._free[size].pop(0)
        while size > wanted:
            size //= 2
            bisect.insort(self._free.setdefault(size, []), base + size)
        return Block(base, wanted)

    def give(self, block: Block) -> None:
        """Frees a block and joins it with its free neighbours."""
        base, size = block.base, block.size
        while size < self._largest:
            free = self._free.setdefault(size, [])
            at = bisect.bisect_left(free, base ^ size)
            if at == len(free) or free[at] != base ^ size:
                break
            free.pop(at)
            base &= ~size
            size *= 2
        bisect.insort(self._free.setdefault(size, []), base)

    @property
    def free(self) -> int:
        """Tokens in free blocks."""
        return sum(size * len(bases) for size, bases in self._free.items())
