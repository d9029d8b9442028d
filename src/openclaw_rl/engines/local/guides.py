"""Grammars as masks: one guide a row, following its answer; the masks of a step are made beside the model's pass."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from llguidance import LLMatcher

WORD = 32


class Guide:
    """Where one answer stands in its grammar.

    Text that only one way leads through is forced in the tokenizer's own cut, so that a model never reads a cut of its
    words that it would not have made.
    """

    def __init__(self, matcher: LLMatcher, ends: Sequence[int], own_end: int) -> None:
        self._matcher = matcher
        self._ends = tuple(ends)
        self._own_end = own_end  # the library allows this id where the grammar is complete; we allow `ends`
        self.problem = ""
        self.is_over = False

    def fill(self, words: np.ndarray[tuple[int], np.dtype[np.int32]]) -> bool:
        """Writes the mask of the next token; whether it allows that one alone."""
        matcher, size = self._matcher, words.size * WORD
        is_complete = matcher.is_accepting()
        forced = [] if is_complete else matcher.compute_ff_tokens()
        if forced:
            words[:] = 0
            _allow(words, forced[0])
            return True
        matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        if is_complete:
            words[self._own_end // WORD] &= np.int32(~_bit(self._own_end))
            for end in self._ends:
                if end < size:
                    _allow(words, end)
        if matcher.is_error():
            self.problem = f"the grammar cannot be followed: {matcher.get_error()}"
        return int(np.bitwise_count(words.view(np.uint32)).sum()) == 1

    def take(self, token: int) -> None:
        """The answer went on with this token."""
        matcher = self._matcher
        if token in self._ends and matcher.is_accepting():
            self.is_over = True
            return
        if not matcher.consume_token(token):
            self.problem = f"the grammar cannot be followed: {matcher.get_error()}"
        elif matcher.is_stopped() and not self._ends:
            self.is_over = True


def _bit(token: int) -> int:
    bit = 1 << (token % WORD)
    return bit - (1 << WORD) if bit >> (WORD - 1) else bit


def _allow(words: np.ndarray[tuple[int], np.dtype[np.int32]], token: int) -> None:
    words[token // WORD] |= np.int32(_bit(token))


@dataclass(frozen=True, slots=True)
class Masks:
    """What may come next: `allowed` [guided, V] for the entries `rows` of a step, and which of these is forced."""

    rows: tuple[int, ...]
    allowed: Tensor
    forced: tuple[bool, ...]


class MaskMaker:
    """Fills masks in a thread of its own, which the library's work leaves the interpreter to."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._size = vocab_size
        self._device = device
        self._words = -(-vocab_size // WORD)
        self._thread: ThreadPoolExecutor | None = None

    def begin(self, guides: Sequence[Guide | None]) -> Future[Masks] | None:
        """The masks of a step's rows, under way; None where no row has a guide."""
        rows = [row for row, guide in enumerate(guides) if guide is not None]
        if not rows:
            return None
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="masks")
        return self._thread.submit(self._made, rows, [guide for guide in guides if guide is not None])

    def _made(self, rows: Sequence[int], guides: Sequence[Guide]) -> Masks:
        table = np.zeros((len(guides), self._words), dtype=np.int32)
        forced = tuple(guide.fill(table[entry]) for entry, guide in enumerate(guides))
        bits = np.unpackbits(table.view(np.uint8), axis=1, count=self._size, bitorder="little")
        return Masks(tuple(rows), torch.from_numpy(bits.view(np.bool_)).to(self._device), forced)
