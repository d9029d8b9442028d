"""Keys and values of all rows: one arena a layer, in which a row is one contiguous block [heads, size, head_dim].

Head-major, because attention reads one head at a time: at 10,000 tokens a decode step's attention takes half of what
it takes token-major.
"""

from __future__ import annotations

import contextlib
import mmap
from dataclasses import dataclass

import torch
from torch import Tensor

from openclaw_rl.engines.local.blocks import Block


@dataclass(frozen=True, slots=True)
class Geometry:
    """The key and value shapes of one layer, as its attention was seen to make them."""

    heads: int
    key_dim: int
    value_dim: int

    @property
    def numbers(self) -> int:
        """Numbers a token keeps in this layer."""
        return self.heads * (self.key_dim + self.value_dim)


class Cache:
    """The arenas. Memory that no row has touched is not resident on a CPU."""

    def __init__(self, layers: dict[int, Geometry], tokens: int, *, dtype: torch.dtype, device: torch.device) -> None:
        self.layers = layers
        self.tokens = tokens
        self.keys = {
            index: _zeros((tokens * layer.heads, layer.key_dim), dtype, device) for index, layer in layers.items()
        }
        self.values = {
            index: _zeros((tokens * layer.heads, layer.value_dim), dtype, device) for index, layer in layers.items()
        }
        self.head_counts = tuple(sorted({layer.heads for layer in layers.values()}))

    def view(self, layer: int, base: int, rows: int, size: int) -> tuple[Tensor, Tensor]:
        """Keys and values [rows, heads, size, dim] of so many neighbouring blocks of one size. A view."""
        heads = self.layers[layer].heads
        start, stop = base * heads, (base + rows * size) * heads
        shape = (rows, heads, size, -1)
        return self.keys[layer][start:stop].view(shape), self.values[layer][start:stop].view(shape)

    def write(self, layer: int, index: Tensor, keys: Tensor, values: Tensor) -> None:
        """Stores keys and values [tokens * heads, dim] at `index`, which counts in heads of tokens."""
        self.keys[layer].index_copy_(0, index, keys)
        self.values[layer].index_copy_(0, index, values)

    def copy(self, source: Block, target: Block, tokens: int) -> None:
        """The first `tokens` of one block into another."""
        for layer in self.layers:
            for have, want in zip(
                self.view(layer, source.base, 1, source.size),
                self.view(layer, target.base, 1, target.size),
                strict=True,
            ):
                want[:, :, :tokens].copy_(have[:, :, :tokens])

    @property
    def token_bytes(self) -> int:
        """What the keys and values of one token take, over all layers."""
        return sum(layer.numbers * self.keys[index].element_size() for index, layer in self.layers.items())

    def wipe(self, block: Block) -> None:
        """Zeroes a block: nothing can be read from it any more, and no number in it reaches the rows read past it."""
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
