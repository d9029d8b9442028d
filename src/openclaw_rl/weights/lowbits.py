"""Base weights in 8 or 4 bits, the same in the engine and in the trainer; LoRA weights stay as they are.

    8 bits: codes round(127 w / s), s the largest |w| of a row          (arXiv 2208.07339, without its 8-bit products)
    4 bits: NormalFloat codes of w / s, s the largest |w| of 64 numbers (arXiv 2305.14314)

bitsandbytes makes and reads the codes; products are taken with the weights read back, in the model's number format.
Engine and trainer lower a model by this one function, so both compute with equal weights.
"""

from __future__ import annotations

import importlib
import logging
import sys
from dataclasses import dataclass
from itertools import pairwise
from types import ModuleType

import torch
from torch import Tensor, nn
from torch.nn import functional

from openclaw_rl.errors import ConfigError

BITS = {"8bit": 8, "4bit": 4}
BLOCK = 64  # numbers that share a scale, at 4 bits
CHOOSERS = {"gate", "router", "shared_expert_gate"}  # what chooses experts: a few rows that decide much
PACKED_ROWS = 16  # below so many rows torch's product with 8-bit codes is the faster one in bfloat16 on a CPU


@dataclass(frozen=True, slots=True)
class LowBitsWeight:
    """A weight [out, in] as codes and scales."""

    codes: Tensor  # [out, in] int8, or [out * in / 2] uint8
    scales: Tensor  # float32: [out], or [out * in / 64]
    shape: tuple[int, int]

    @property
    def bits(self) -> int:
        """8 or 4."""
        return 8 if self.codes.dtype == torch.int8 else 4

    def plain(self, dtype: torch.dtype) -> Tensor:
        """The weight read back, [out, in], in a tensor of its own."""
        if self.bits == 8:
            return self.codes.to(dtype).mul_(self._row_scales(dtype)[:, None])
        library = code_library()
        shape = torch.Size(self.shape)
        state = library.QuantState(self.scales, shape=shape, blocksize=BLOCK, quant_type="nf4", dtype=dtype)
        found: Tensor = library.dequantize_4bit(self.codes, state)
        return found

    def times(self, rows: Tensor, bias: Tensor | None) -> Tensor:
        """x W^T + bias, [n, in] to [n, out]."""
        if self.bits == 8 and rows.dtype == torch.bfloat16 and not rows.is_cuda and len(rows) <= PACKED_ROWS:
            out: Tensor = torch._weight_int8pack_mm(rows, self.codes, self._row_scales(rows.dtype))
            return out if bias is None else out.add_(bias)
        return functional.linear(rows, self.plain(rows.dtype), bias)

    def rows(self, start: int, stop: int) -> LowBitsWeight:
        """The outputs from `start` up to `stop`. A view."""
        width = self.shape[1]
        if self.bits == 8:
            return LowBitsWeight(self.codes[start:stop], self.scales[start:stop], (stop - start, width))
        codes = self.codes[start * width // 2 : stop * width // 2]
        scales = self.scales[start * width // BLOCK : stop * width // BLOCK]
        return LowBitsWeight(codes, scales, (stop - start, width))

    def _row_scales(self, dtype: torch.dtype) -> Tensor:
        return (self.scales / 127).to(dtype)


class LowBitsLinear(nn.Module):
    """A linear layer with such a weight. Codes and scales are buffers, and keep their number format."""

    codes: Tensor
    scales: Tensor

    def __init__(self, weight: LowBitsWeight, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.register_buffer("codes", weight.codes, persistent=False)
        self.register_buffer("scales", weight.scales, persistent=False)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    @property
    def low(self) -> LowBitsWeight:
        """The weight."""
        return LowBitsWeight(self.codes, self.scales, (self.out_features, self.in_features))

    @low.setter
    def low(self, weight: LowBitsWeight) -> None:
        self.codes, self.scales = weight.codes, weight.scales

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] to [..., out]."""
        return functional.linear(x, self.low.plain(x.dtype), self.bias)


def in_low_bits(weight: Tensor, bits: int) -> LowBitsWeight:
    """The weight [out, in], `in` a multiple of 64, in 8 or 4 bits. Raises ConfigError without bitsandbytes."""
    shape = (weight.shape[0], weight.shape[1])
    library = code_library()
    if bits == 8:
        codes, scales, _ = library.int8_vectorwise_quant(weight.contiguous())
        return LowBitsWeight(codes, scales.flatten(), shape)
    codes, state = library.quantize_4bit(weight.contiguous(), blocksize=BLOCK, quant_type="nf4")
    return LowBitsWeight(codes.flatten(), state.absmax, shape)


def joined(weights: list[LowBitsWeight]) -> LowBitsWeight:
    """One weight whose outputs are those of all, one after the other; a view where they lie so in memory."""
    if len(weights) == 1:
        return weights[0]
    shape = (sum(one.shape[0] for one in weights), weights[0].shape[1])
    return LowBitsWeight(_row_of([one.codes for one in weights]), _row_of([one.scales for one in weights]), shape)


def _row_of(parts: list[Tensor]) -> Tensor:
    first = parts[0]
    if all(
        before.data_ptr() + before.nbytes == after.data_ptr()
        and before.untyped_storage().data_ptr() == after.untyped_storage().data_ptr()
        for before, after in pairwise(parts)
    ):
        return first.as_strided((sum(len(part) for part in parts), *first.shape[1:]), first.stride())
    return torch.cat(parts)


def lower(model: nn.Module, head: nn.Module | None, weights: str, *, dtype: torch.dtype, device: torch.device) -> None:
    """Puts a LowBitsLinear in the place of each linear layer but the output head and what chooses experts.

    `weights` is `8bit` or `4bit`; anything else changes nothing. Embeddings, norms, experts whose weights are one
    tensor, and layers whose inputs are not a multiple of 64 stay as they are. One layer is read at a time. `dtype` is
    the number format that the model would have otherwise: codes are made of what it would compute with.
    """
    bits = BITS.get(weights)
    if bits is None:
        return
    for path, module in list(model.named_modules()):
        if type(module) is nn.Linear and is_lowered(path, module.in_features) and module is not head:
            bias = None if module.bias is None else module.bias.detach().to(device, dtype)
            low = in_low_bits(module.weight.detach().to(device, dtype), bits)
            model.set_submodule(path, LowBitsLinear(low, bias))


def is_lowered(path: str, inputs: int) -> bool:
    """Whether the linear layer of this path and size is stored in few bits."""
    return inputs % BLOCK == 0 and path.rpartition(".")[2] not in CHOOSERS


def code_library() -> ModuleType:
    """bitsandbytes.functional.

    On some CPUs its import fetches a compiled kernel from the hub if the package `kernels` is installed. Nothing is
    fetched to be run here, and that kernel is not used: `kernels` cannot be imported meanwhile.
    """
    found = sys.modules.get("bitsandbytes.functional")
    if found is not None:
        return found
    kept = sys.modules.get("kernels")
    sys.modules["kernels"] = None  # type: ignore[assignment]  # makes its import fail
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
    try:
        return importlib.import_module("bitsandbytes.functional")
    except ModuleNotFoundError as error:
        raise ConfigError(
            "base weights in 8 or 4 bits need bitsandbytes",
            fix="install it: pip install 'openclaw-rl[lowbits]', or set engine.weights = auto",
        ) from error
    finally:
        if kept is None:
            del sys.modules["kernels"]
        else:
            sys.modules["kernels"] = kept
