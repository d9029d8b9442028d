"""Activation checkpointing: long passes compute activations again in the backward pass, which takes a third more time.

The memory kept for each token of each layer limits the length of a conversation that can be learned from. For 36 layers
of width 2,560 in bfloat16 it is 5.4 MB a token, or 0.4 MB with checkpointing (`make bench-gpu`). Half of that are the
layers' inputs; on a GPU without room for them they wait in the host's memory. A reply that continues a constant prompt
also keeps, on a GPU and in each layer, the prompt's keys and values: 0.15 MB a token of such a prompt, and 72 bytes for
each of its own tokens and each head that shares a key head. With checkpointing they exist in one layer at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn
from torch.autograd.graph import save_on_cpu
from transformers import PreTrainedModel

LONG_TOKENS = 8192  # in one pass
KEPT = 30.0  # hidden states that a layer keeps of each token
KEPT_AGAIN = 2.2  # the same with checkpointing
USABLE = 0.75  # of a device's free memory: others use it too, and a pass needs more than what it keeps


class Recompute:
    """Switched on or off for each pass, since the forward pass decides what it keeps."""

    def __init__(self, model: PreTrainedModel, *, always: bool) -> None:
        """Raises ValueError if it must be always on, and the model has no layers that can be computed again."""
        self._always = always
        self._device: torch.device = model.device
        config = model.config.get_text_config()
        self._token_bytes: int = config.num_hidden_layers * config.hidden_size * model.dtype.itemsize
        head_dim = config.to_dict().get("head_dim") or config.hidden_size // config.num_attention_heads
        self._number_bytes: int = config.num_hidden_layers * model.dtype.itemsize
        self._heads: int = config.num_attention_heads
        self._key_heads: int = config.to_dict().get("num_key_value_heads") or self._heads
        self._head_dim: int = head_dim
        self._layers: list[nn.Module] = []
        try:
            model.activation_checkpointing_enable()
        except ValueError:
            if always:
                raise
            return
        self._layers = [module for module in model.modules() if getattr(module, "gradient_checkpointing", False)]
        self._switch(is_on=False)

    @contextlib.contextmanager
    def over(self, tokens: int, held: int = 0) -> Iterator[None]:
        """The context of a pass over this many tokens, which also attend to `held` tokens that were read before.

        Of each of those a layer keeps keys and values and the mask, in the smaller form of two: as trees attend.
        """
        room = USABLE * free_bytes(self._device)
        folded = 2 * self._key_heads * self._head_dim + self._heads // self._key_heads * tokens
        copied = 2 * self._heads * self._head_dim + tokens
        kept = tokens * self._token_bytes * KEPT + held * min(folded, copied) * self._number_bytes
        is_on = self._always or tokens > LONG_TOKENS or kept > room
        self._switch(is_on=is_on)
        is_too_much = bool(self._layers) and tokens * self._token_bytes * KEPT_AGAIN > room
        with save_on_cpu() if is_too_much else contextlib.nullcontext():
            yield

    def off(self) -> None:
        """For passes that keep everything, until the next context. Where it must be always on, do not make such."""
        self._switch(is_on=False)

    def _switch(self, *, is_on: bool) -> None:
        """Switches only the layers' training flags, not the rest of the model's."""
        for layer in self._layers:
            layer.training = is_on


def free_bytes(device: torch.device) -> float:
    """Free bytes of a GPU, including torch's cache for this process; infinite on other devices: it is unknown."""
    if device.type != "cuda":
        return float("inf")
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return float(torch.cuda.mem_get_info(device)[0] + kept)
