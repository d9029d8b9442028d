"""The tokens that grammars allow in a step, as masks for the sampler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from openclaw_rl.core.sampling import Grammar
from openclaw_rl.engines.local.guides import WORD, Guide, fill

FORBIDDEN = -1e30  # infinity makes sums slow, and a hundredth of this would be enough
# The bits of a mask's byte: which of eight tokens are allowed.
OF_BYTE = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").astype(np.float32)


class Guided(Protocol):
    """An answer that follows a grammar."""

    @property
    def problem(self) -> str:
        """Why it cannot be followed any more; empty if it can."""

    @property
    def is_over(self) -> bool:
        """Whether the grammar has ended the answer."""

    def take(self, token: int) -> None:
        """The answer continued with this token."""


class GrammarSource(Protocol):
    """Compiles grammars, and makes a guide for each answer that follows one. Safe for several threads."""

    def holds(self, grammar: Grammar) -> bool:
        """Whether it is compiled already."""

    def compile(self, grammar: Grammar) -> None:
        """Raises RequestError if the library refuses it, or it is too large."""

    def guide(self, grammar: Grammar, said: tuple[int, ...] = ()) -> Guided:
        """A guide positioned after the tokens `said`. Raises RequestError as `compile`."""


@dataclass(frozen=True, slots=True)
class Masks:
    """The tokens that may come next, for the entries `rows` of a step: `allowed` [guided, V] is 1 or 0.

    `forced` marks the entries where one token is left.
    """

    rows: tuple[int, ...]
    allowed: Tensor
    forced: tuple[bool, ...]

    def forbidden(self) -> Tensor:
        """The addend for logits [guided, V]: 0, or a number so low that the token's probability is 0."""
        return (1.0 - self.allowed) * FORBIDDEN


class MaskSource(Protocol):
    """Makes the masks of a step."""

    def begin(self, guides: Mapping[int, Guided]) -> Callable[[], Masks]:
        """Returns a function that waits for the masks of a step's rows with a guide, by row."""


class Unpacking:
    """Converts bits to floats in memory that is kept: new memory is slow."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self.words = -(-vocab_size // WORD)
        self._size = vocab_size
        self._device = device
        self._allowed = np.empty((0, self.words * 4, 8), dtype=np.float32)

    def masks(
        self, rows: tuple[int, ...], bits: np.ndarray[tuple[int, int], np.dtype[np.uint8]], forced: Sequence[bool]
    ) -> Masks:
        """The masks of bits [rows, words * 4] as bytes."""
        if len(self._allowed) < len(rows):
            self._allowed = np.empty((len(rows), self.words * 4, 8), dtype=np.float32)
        out = self._allowed[: len(rows)]
        np.take(OF_BYTE, bits, axis=0, out=out, mode="clip")
        allowed = torch.from_numpy(out.reshape(len(rows), -1))[:, : self._size]
        return Masks(rows, allowed.to(self._device), tuple(forced))


class MaskMaker:
    """Makes masks at once, in this process."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._unpacking = Unpacking(vocab_size, device)

    def begin(self, guides: Mapping[int, Guided]) -> Callable[[], Masks]:
        """The masks of a step's rows that have a guide, by row."""
        found = [guide for guide in guides.values() if isinstance(guide, Guide)]
        table, forced = fill(found, self._unpacking.words)
        made = self._unpacking.masks(tuple(guides), table.view(np.uint8), forced)
        return lambda: made
