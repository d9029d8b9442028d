"""Answers that follow grammars: a guide for each, and the tokens that may come next as bits.

No torch: outside tests it runs in a separate process (guide_process.py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from openclaw_rl.engines.grammar_problems import plain

if TYPE_CHECKING:
    from llguidance import LLMatcher

Words = np.ndarray[tuple[int], np.dtype[np.int32]]
WORD = 32
FEW = 64


class Guide:
    """The position of one answer in its grammar.

    If only one text is possible, it is forced as the tokenizer would split it, so that a model never reads its own
    words in tokens that it would not have sampled.
    """

    def __init__(self, matcher: LLMatcher, ends: Sequence[int], own_end: int) -> None:
        self._matcher = matcher
        self._ends = tuple(ends)
        self._own_end = own_end  # the library allows this id when the grammar is complete; we allow `ends`
        self._forced: list[int] = []  # the next tokens, the last one first
        self._taken: list[int] = []  # tokens of the answer that the library has not received yet
        self.is_complete = False  # whether the answer may end here
        self.problem = ""
        self.is_over = False

    def mask(self, pointer: int, size_bytes: int) -> None:
        """Writes the library's mask of the next token; nothing if the token is known to be forced."""
        if not self._forced:
            self._catch_up()
            self._matcher.unsafe_compute_mask_ptr(pointer, size_bytes)

    def narrow(self, words: Words, left: int) -> int:
        """Turns the library's mask, which allows `left` tokens, into the sampling mask; returns how many it allows."""
        if not self._forced:
            # the library lets an answer end when it is complete, and also at a dead end
            may_end = bool(int(words[self._own_end // WORD]) >> self._own_end % WORD & 1)
            self.is_complete = may_end and self._matcher.is_accepting()
            if self.is_complete:
                return self._ended(words)
            if may_end:
                self.problem = f"the grammar cannot be followed: {self._matcher.get_error() or 'it leads nowhere'}"
                return left
            if left > FEW:  # a forced text allows only a few tokens
                return left
            if not left or self._matcher.is_error():
                self.problem = f"the grammar cannot be followed: {self._matcher.get_error() or 'no token is left'}"
                return left
            self._forced = self._matcher.compute_ff_tokens()[::-1]
            if not self._forced:
                return left
        self.is_complete = False
        words[:] = 0
        _allow(words, self._forced.pop())
        return 1

    def take(self, token: int) -> None:
        """The answer continued with this token. The library receives it with the next mask, during the model's pass."""
        if self.is_complete and token in self._ends:
            self.is_over = True
            return
        self._taken.append(token)
        if not self._ends:
            self._catch_up()
            self.is_over = self._matcher.is_stopped()

    def _catch_up(self) -> None:
        taken, self._taken = self._taken, []
        if taken and self._matcher.try_consume_tokens(taken) < len(taken):
            self.problem = f"the grammar cannot be followed: {plain(self._matcher.get_error())}"

    def go_on(self, said: Sequence[int]) -> None:
        """The answer begins with these tokens, which were sampled before."""
        taken = self._matcher.try_consume_tokens(list(said))
        if taken < len(said):
            self.problem = "the grammar cannot be followed from the answer's last token"
        if not self._ends:
            self.is_over = self._matcher.is_stopped()

    def _ended(self, words: Words) -> int:
        words[self._own_end // WORD] &= np.int32(~_bit(self._own_end))
        for end in self._ends:
            if end < words.size * WORD:
                _allow(words, end)
        left = int(np.bitwise_count(words.view(np.uint32)).sum())
        if not left:
            self.problem = plain(self._matcher.get_error()) or "the grammar leaves no token"
        return left


class LostGuide:
    """An answer whose grammar cannot be followed: any token may come next; `problem` is the reason."""

    is_complete = False
    is_over = False

    def __init__(self, problem: str) -> None:
        self.problem = problem

    def mask(self, pointer: int, size_bytes: int) -> None:
        """Allows every token."""
        ctypes.memset(pointer, 0xFF, size_bytes)

    def narrow(self, words: Words, left: int) -> int:
        """Leaves the mask as it is."""
        return left

    def take(self, token: int) -> None:
        """Does nothing."""


def _bit(token: int) -> int:
    bit = 1 << (token % WORD)
    return bit - (1 << WORD) if bit >> (WORD - 1) else bit


def _allow(words: Words, token: int) -> None:
    words[token // WORD] |= np.int32(_bit(token))


def fill(
    guides: Sequence[Guide | LostGuide], words: int
) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.int32]], list[bool]]:
    """Bits [guides, words] of the tokens that may come next, and the entries where only one may."""
    table = np.zeros((len(guides), words), dtype=np.int32)
    pointer, row_bytes = table.ctypes.data, table.strides[0]
    for entry, guide in enumerate(guides):
        guide.mask(pointer + entry * row_bytes, row_bytes)
    counts = np.bitwise_count(table.view(np.uint32)).sum(1).tolist()
    return table, [guide.narrow(table[entry], counts[entry]) == 1 for entry, guide in enumerate(guides)]
