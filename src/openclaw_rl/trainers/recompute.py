"""Activations of long passes are not kept but computed again in the backward pass: a third more time, far less memory.

What is kept for each token of each layer bounds the length of a conversation that can be learned from. Reckoned for 36
layers of width 2,560 in bfloat16: some 3 MB a token, or 0.2 MB where layers are computed again.
"""

from __future__ import annotations

from torch import nn
from transformers import PreTrainedModel

LONG_TOKENS = 8192  # in one pass


class Recompute:
    """Switched on for each pass before it is taken, since the forward pass decides what it keeps."""

    def __init__(self, model: PreTrainedModel, *, always: bool) -> None:
        """Raises ValueError where it is to be always on, and the model has no layers that can be computed again."""
        self._always = always
        self._layers: list[nn.Module] = []
        try:
            model.activation_checkpointing_enable()
        except ValueError:
            if always:
                raise
            return
        self._layers = [module for module in model.modules() if getattr(module, "gradient_checkpointing", False)]
        self.before(0)

    def before(self, tokens: int) -> None:
        """A pass over so many tokens is next. Nothing else in the model is told that it is being trained."""
        is_on = self._always or tokens > LONG_TOKENS
        for layer in self._layers:
            layer.training = is_on
