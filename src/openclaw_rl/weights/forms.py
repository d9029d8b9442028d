"""Base weights in the forms used for products: few bits, or oneDNN's layout."""

from __future__ import annotations

import ctypes
import importlib
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn
from torch.nn import functional

from openclaw_rl.errors import ConfigError

BITS = {"8bit": 8, "4bit": 4}
BLOCK = 64  # numbers that share a scale, at 4 bits
CHOOSERS = {"gate", "router", "shared_expert_gate"}  # layers that choose experts: a few important rows
PACKED_ROWS = 16  # below this many rows torch's product with 8-bit codes is faster in bfloat16 on a CPU
KERNEL_ROWS = 64  # up to this many rows the kernel for GPUs reads codes as it multiplies; with more, that gains little
ROWS_HINT = 16  # the layout is made for this many rows; the same from 2 rows up
DTYPES = (torch.float32, torch.bfloat16)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LowBitsWeight:
    """Base weights in 8 or 4 bits, the same in the engine and in the trainer; LoRA weights do not change.

        8 bits: codes round(127 w / s), s the largest |w| of a row (arXiv 2208.07339, without its 8-bit products)
        4 bits: NormalFloat codes of w / s, s the largest |w| of 64 numbers (arXiv 2305.14314)

    bitsandbytes makes and reads the codes of 4 bits; that of 8 bits is not used, since on a GPU it takes float16 alone.
    Products are taken with the weights read back, in the model's number format.
    Engine and trainer convert a model with this same function, so both compute with equal weights.

    The weight is [out, in].
    """

    codes: Tensor  # [out, in] int8, or [out * in / 2] uint8
    scales: Tensor  # float32: [out], or [out * in / 64]
    shape: tuple[int, int]

    @property
    def bits(self) -> int:
        """8 or 4."""
        return 8 if self.codes.dtype == torch.int8 else 4

    def plain(self, dtype: torch.dtype) -> Tensor:
        """The weight read back, [out, in], in a new tensor."""
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
        if self.bits == 8 and rows.is_cuda and len(rows) <= KERNEL_ROWS:
            kernel = _codes_kernel(rows.device, rows.dtype)
            if kernel is not None:
                return kernel(rows, self.codes, self.scales, bias)
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


@cache
def _codes_kernel(device: torch.device, dtype: torch.dtype) -> Callable[..., Tensor] | None:
    """The kernel of few rows and 8-bit codes on this GPU; None where it cannot be compiled or computes wrongly."""
    try:
        from openclaw_rl.weights import codes_kernel

        codes_kernel.check(device, dtype, KERNEL_ROWS)
    except Exception as error:  # Triton's compiler, and the C compiler that it calls, raise errors of many kinds
        log.warning(
            "8-bit weights are read without a kernel of our own, and slower: %s: %s", type(error).__name__, error
        )
        return None
    else:
        return codes_kernel.times


class LowBitsLinear(nn.Module):
    """A linear layer with a low-bit weight. Codes and scales are buffers, and keep their number format."""

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
    """The weight [out, in], `in` a multiple of 64, in 8 or 4 bits. Raises ConfigError at 4 without bitsandbytes."""
    shape = (weight.shape[0], weight.shape[1])
    if bits == 8:
        scales = weight.abs().amax(dim=1).float()
        codes = (weight.float() * (127 / scales.clamp_min(torch.finfo(torch.float32).tiny))[:, None]).round()
        return LowBitsWeight(codes.to(torch.int8), scales, shape)
    codes, state = code_library().quantize_4bit(weight.contiguous(), blocksize=BLOCK, quant_type="nf4")
    return LowBitsWeight(codes.flatten(), state.absmax, shape)


def joined(weights: list[LowBitsWeight]) -> LowBitsWeight:
    """One weight with the outputs of all, in order; a view if they are adjacent in memory."""
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
    """Replaces each linear layer with a LowBitsLinear, except the output head and layers that choose experts.

    `weights` is `8bit` or `4bit`; anything else changes nothing. Embeddings, norms, experts whose weights are one
    tensor, and layers whose inputs are not a multiple of 64 do not change. One layer is read at a time. `dtype` is
    the number format that the model would have otherwise: codes are made from its weights in that format.
    """
    bits = BITS.get(weights)
    if bits is None:
        return
    chosen = {
        path: module
        for path, module in model.named_modules()
        if type(module) is nn.Linear and is_lowered(path, module.in_features) and module is not head
    }
    numbers = sum(module.weight.numel() for module in chosen.values())
    rows = sum(module.out_features for module in chosen.values())
    place = CodePlace(numbers, rows, bits, device) if device.type == "cuda" else None
    for path, module in chosen.items():
        bias = None if module.bias is None else module.bias.detach().to(device, dtype)
        low = in_low_bits(module.weight.detach().to(device, dtype), bits)
        model.set_submodule(path, LowBitsLinear(low if place is None else place.moved(low), bias))


class CodePlace:
    """Memory for the codes and scales of a whole model, side by side in the order of its layers.

    On a GPU each layer's codes would be cut from the memory of the weights that they were made of, and keep the rest
    of it from being freed. It also makes `joined` a view.
    """

    def __init__(self, numbers: int, rows: int, bits: int, device: torch.device) -> None:
        kind, scales = (torch.int8, rows) if bits == 8 else (torch.uint8, numbers // BLOCK)
        self._codes = torch.empty(numbers * bits // 8, dtype=kind, device=device)
        self._scales = torch.empty(scales, dtype=torch.float32, device=device)

    def moved(self, low: LowBitsWeight) -> LowBitsWeight:
        """The weight in the next part of this memory."""
        codes, self._codes = self._codes[: low.codes.numel()], self._codes[low.codes.numel() :]
        scales, self._scales = self._scales[: len(low.scales)], self._scales[len(low.scales) :]
        return replace(low, codes=codes.view_as(low.codes).copy_(low.codes), scales=scales.copy_(low.scales))


def is_lowered(path: str, inputs: int) -> bool:
    """Whether the linear layer of this path and size is stored in few bits."""
    return inputs % BLOCK == 0 and path.rpartition(".")[2] not in CHOOSERS


def code_library() -> ModuleType:
    """bitsandbytes.functional.

    On some CPUs its import fetches a compiled kernel from the hub if the package `kernels` is installed. Code is never
    fetched here, and that kernel is not used: `kernels` cannot be imported meanwhile.
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
            "base weights in 4 bits need bitsandbytes",
            fix="install it: pip install 'openclaw-rl[lowbits]', or set engine.weights = 8bit or auto",
        ) from error
    finally:
        if kept is None:
            del sys.modules["kernels"]
        else:
            sys.modules["kernels"] = kept


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A weight [out, in] in the layout that oneDNN multiplies with on a CPU, in memory of our choice, such as a file.

    torch makes that layout, but keeps it in private memory. Here its bytes are in a tensor, and
    oneDNN is given their address. Engine and trainer multiply with the same bytes, so both may map them from one file.
    """

    held: Tensor  # its bytes, uint8
    layout: bytes  # oneDNN's description of them
    shape: tuple[int, int]
    dtype: torch.dtype
    operand: Tensor  # oneDNN's tensor: it points to `held` without keeping it alive

    def plain(self) -> Tensor:
        """The weight read back, [out, in], in a new tensor."""
        found: Tensor = self.operand.to_dense()
        return found

    def times(self, rows: Tensor, bias: Tensor | None) -> Tensor:
        """x W^T + bias, [n, in] to [n, out]."""
        out: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self.operand, bias, "none", [], "")
        return out

    def part(self, start: int, like: PackedWeight) -> PackedWeight:
        """The outputs from `start` on that equal `like`, read from here; `like` itself if its bytes differ."""
        at = start * self.held.nbytes // self.shape[0]
        here = self.held[at : at + like.held.nbytes]
        return like.moved(here) if torch.equal(here, like.held) else like

    def moved(self, held: Tensor) -> PackedWeight:
        """The same weight with its bytes read from here."""
        return replace(self, held=held, operand=_operand(held, self.layout, self.shape, self.dtype))


class PackedLinear(nn.Module):
    """A linear layer with a packed weight; it never trains. A weight tied to an embedding is laid out again."""

    def __init__(self, weight: PackedWeight, bias: nn.Parameter | None, *, is_tied: bool = False) -> None:
        super().__init__()
        self.is_tied = is_tied
        self.out_features, self.in_features = weight.shape
        self.packed = weight
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] to [..., out]. Without a gradient."""
        flat = x.reshape(-1, self.in_features)
        return self.packed.times(flat, self.bias).view(*x.shape[:-1], self.out_features)


def pack(weight: Tensor) -> PackedWeight:
    """The weight [out, in] in this layout, in new memory. Raises RuntimeError if torch has none for it."""
    made = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), ROWS_HINT)
    layout = bytes(torch.ops.mkldnn._get_mkldnn_serialized_md(made).tolist())
    held = torch.empty(torch.ops.mkldnn._nbytes(made), dtype=torch.uint8)
    ctypes.memmove(held.data_ptr(), torch.ops.mkldnn.data_ptr(made), held.nbytes)
    shape = (weight.shape[0], weight.shape[1])
    return PackedWeight(held, layout, shape, weight.dtype, _operand(held, layout, shape, weight.dtype))


def packed_as_one(weights: list[PackedWeight]) -> PackedWeight:
    """One weight with the outputs of all, in order; over their own bytes if these are adjacent."""
    if len(weights) == 1:
        return weights[0]
    whole = pack(torch.cat([one.plain() for one in weights]))
    is_row = all(
        before.held.data_ptr() + before.held.nbytes == after.held.data_ptr()
        and before.held.untyped_storage().data_ptr() == after.held.untyped_storage().data_ptr()
        for before, after in pairwise(weights)
    )
    if is_row and sum(one.held.nbytes for one in weights) == whole.held.nbytes:
        there = weights[0].held.as_strided((whole.held.nbytes,), (1,))
        if torch.equal(there, whole.held):
            return whole.moved(there)
    return whole


@cache
def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether weights use this layout. The machine's features decide, not timing, so that equal runs stay equal."""
    if device.type != "cpu" or dtype not in DTYPES:
        return False
    weight = (torch.arange(64 * 48, dtype=torch.float32).view(64, 48) % 7).to(dtype)
    rows = (torch.arange(3 * 48, dtype=torch.float32).view(3, 48) % 5).to(dtype)
    try:
        packed = pack(weight)
        is_right = torch.equal(packed.plain(), weight)
        return is_right and torch.allclose(packed.times(rows, None), rows @ weight.t(), rtol=1e-2)
    except (AttributeError, OSError, RuntimeError):  # operators that are not public: absent, or refusing here
        return False


def _operand(held: Tensor, layout: bytes, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """oneDNN's tensor over existing bytes, through the interface that compiled models use."""
    library = _library()
    code = library.aoti_torch_dtype_float32() if dtype is torch.float32 else library.aoti_torch_dtype_bfloat16()
    whole = ctypes.c_int64
    found = ctypes.c_void_p()
    failed = library.aoti_torch_create_tensor_from_blob_v2(
        ctypes.c_void_p(held.data_ptr()), whole(2), (whole * 2)(*shape), (whole * 2)(shape[1], 1), whole(0),
        ctypes.c_int32(code), ctypes.c_int32(library.aoti_torch_device_type_cpu()), ctypes.c_int32(-1),
        ctypes.byref(found), ctypes.c_int32(library.aoti_torch_layout__mkldnn()), layout, whole(len(layout)),
    )  # fmt: skip
    if failed:
        raise RuntimeError("torch makes no tensor of oneDNN over memory that is given to it")
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    made: Tensor = torch._C._aoti.alloc_tensor_by_stealing_from_void_ptr(capsule(found, None, None))
    return made


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
