"""Biases and penalties of one row, as they stand after what it has read and said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from openclaw_rl.core.sampling import LogitAdjustment


class LogitAdjuster:
    """Adds up what a request's penalties ask for, token by token."""

    def __init__(self, leaning: LogitAdjustment, prompt: Sequence[int], said: Sequence[int], vocab_size: int) -> None:
        self._leaning = leaning
        self._bias = [(token, value) for token, value in leaning.bias if token < vocab_size]
        self._said = Counter(said)
        self._seen = {*prompt, *said} if leaning.repetition != 1.0 else set[int]()

    def take(self, token: int) -> None:
        """The row has said one more token."""
        self._said[token] += 1
        if self._leaning.repetition != 1.0:
            self._seen.add(token)

    def apply(self, logits: Tensor) -> None:
        """Changes the logits [V] in place."""
        leaning, device = self._leaning, logits.device
        if self._bias:
            ids = torch.tensor([token for token, _ in self._bias], device=device)
            logits[ids] += torch.tensor([value for _, value in self._bias], device=device)
        if self._seen:
            ids = torch.tensor(sorted(self._seen), device=device)
            held = logits[ids]
            logits[ids] = torch.where(held > 0, held / leaning.repetition, held * leaning.repetition)
        if self._said and (leaning.presence or leaning.frequency):
            ids = torch.tensor(list(self._said), device=device)
            counts = torch.tensor([float(count) for count in self._said.values()], device=device)
            logits[ids] -= leaning.presence + leaning.frequency * counts
