"""Keys and values of all rows: one arena a layer, in which a row is one contiguous block [heads, size, head_dim].

Head-major, because attention reads one head at a time: at 10,000 tokens a decode step's attention takes half the time
that it takes token-major.
"""

from __future__ import annotations

import bisect
import contextlib
import mmap
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from openclaw_rl.core.version import PolicyVersion

UNIT = 256  # tokens of the smallest block
Ids = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Block:
    """The tokens `base` up to `base + size` of the arena."""

    base: int
    size: int


def block_size(tokens: int) -> int:
    """The size of the smallest block for this many tokens."""
    size = UNIT
    while size < tokens:
        size *= 2
    return size


class BlockAllocator:
    """Places of rows in the cache: blocks of 2^n tokens in pairs, so that rows of equal size are neighbours.

    A buddy allocator over an arena: lowest addresses first, so that running rows are close together.
    """

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
        """A block for this many tokens, or None if none is free."""
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


@dataclass(frozen=True, slots=True)
class Geometry:
    """The key and value shapes of one layer, as observed in its attention."""

    heads: int
    key_dim: int
    value_dim: int

    @property
    def numbers(self) -> int:
        """How many numbers a token needs in this layer."""
        return self.heads * (self.key_dim + self.value_dim)


@dataclass(frozen=True, slots=True)
class AttentionParams:
    """The scaling and the window of a layer's attention; no scaling is 1 / sqrt(key dim).

    Scores may be capped, and each head may have a sink, [heads]: a score that takes its share and gives nothing.
    """

    scaling: float | None
    window: int | None
    softcap: float | None = None
    sinks: Tensor | None = None

    @property
    def is_plain(self) -> bool:
        """Whether torch's kernels compute it."""
        return self.softcap is None and self.sinks is None


class RowsKernel(Protocol):
    """Attention of decoding rows that reads each one's block in the arenas."""

    def __call__(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        blocks: Tensor,
        lengths: Tensor,
        *,
        key_heads: int,
        look: AttentionParams,
    ) -> Tensor:
        """Attention [rows, heads, value dim] of queries [rows, heads, key dim], one a row, over the keys of its block.

        keys and values [tokens * key heads, dim] are a layer's arenas; blocks [2, rows] has where blocks begin and
        their sizes in tokens; lengths [rows] says how many tokens of each are read.
        """


class Cache:
    """The arenas. Memory that no row has touched is not resident on a CPU.

    With a kernel of rows, decoding rows are attended by it, wherever their blocks are.
    """

    def __init__(
        self,
        layers: dict[int, Geometry],
        tokens: int,
        *,
        dtype: torch.dtype,
        device: torch.device,
        rows_kernel: RowsKernel | None = None,
    ) -> None:
        self.layers = layers
        self.tokens = tokens
        self.rows_kernel = rows_kernel
        self.keys = {
            index: _zeros((tokens * layer.heads, layer.key_dim), dtype, device) for index, layer in layers.items()
        }
        self.values = {
            index: _zeros((tokens * layer.heads, layer.value_dim), dtype, device) for index, layer in layers.items()
        }
        self.head_counts = tuple(sorted({layer.heads for layer in layers.values()}))

    def view(self, layer: int, base: int, rows: int, size: int) -> tuple[Tensor, Tensor]:
        """Keys and values [rows, heads, size, dim] of neighbouring blocks of one size. A view."""
        heads = self.layers[layer].heads
        start, stop = base * heads, (base + rows * size) * heads
        shape = (rows, heads, size, -1)
        return self.keys[layer][start:stop].view(shape), self.values[layer][start:stop].view(shape)

    def write(self, layer: int, index: Tensor, keys: Tensor, values: Tensor) -> None:
        """Stores keys and values [tokens * heads, dim] at `index`, which counts in heads of tokens."""
        self.keys[layer].index_copy_(0, index, keys)
        self.values[layer].index_copy_(0, index, values)

    def copy(self, source: Block, target: Block, tokens: int) -> None:
        """Copies the first `tokens` of one block into another."""
        for layer in self.layers:
            for have, want in zip(
                self.view(layer, source.base, 1, source.size),
                self.view(layer, target.base, 1, target.size),
                strict=True,
            ):
                want[:, :, :tokens].copy_(have[:, :, :tokens])

    @property
    def token_bytes(self) -> int:
        """The bytes of one token's keys and values, over all layers."""
        return sum(layer.numbers * self.keys[index].element_size() for index, layer in self.layers.items())

    def wipe(self, block: Block) -> None:
        """Zeroes a block: nothing can be read from it, and its numbers cannot affect rows that share a call."""
        for layer in self.layers:
            for view in self.view(layer, block.base, 1, block.size):
                view.zero_()


def _zeros(shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # pages of an anonymous map stay untouched until a row writes them; torch.zeros would write them all. Huge pages are
    # declined: zeroing one for each head and layer makes a new row's first step 150 ms late
    memory = mmap.mmap(-1, max(1, shape[0] * shape[1] * dtype.itemsize))
    with contextlib.suppress(AttributeError, OSError):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype).view(shape)


@dataclass(slots=True, eq=False)
class CachedPrefix:
    """A row that ended: `tokens` are those whose keys and values are in its block."""

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
    """Rows that ended stay in the cache, found again by version and tokens, until room is needed: least used first.

    The base model is one version, whatever scope it was requested with.
    """

    def __init__(self) -> None:
        self._kept: list[CachedPrefix] = []
        self._clock = 0

    @property
    def tokens(self) -> int:
        """Tokens kept."""
        return sum(len(item.tokens) for item in self._kept)

    def keep(self, version: PolicyVersion, tokens: Ids, block: Block) -> list[Block]:
        """Keeps a row; returns the blocks of rows that are complete prefixes of it and no longer needed."""
        needless = [
            item for item in self._kept if item.version == version and shared(item.tokens, tokens) == len(item.tokens)
        ]
        for item in needless:
            self._kept.remove(item)
        self._clock += 1
        self._kept.append(CachedPrefix(version, tokens, block, self._clock))
        return [item.block for item in needless]

    def find(self, version: PolicyVersion, tokens: Ids) -> tuple[CachedPrefix | None, int]:
        """The row that shares the longest prefix with these tokens under this version, and that prefix's length."""
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
        """Removes a kept row and returns its block."""
        self._kept.remove(item)
        return item.block

    def oldest(self, *, but: CachedPrefix | None = None) -> CachedPrefix | None:
        """The least recently used row, except `but`."""
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
