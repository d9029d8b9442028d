"""Weights in the layout that oneDNN multiplies with on a CPU, in memory of our choice: the pages of a file, for one.

torch makes that layout, and keeps it in memory that one process alone has. Here its bytes lie in a tensor, and oneDNN
is given their address. Engine and trainer multiply with the same bytes, so both may map them from one file.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

ROWS_HINT = 16  # what the layout is made for; the same from 2 rows up
DTYPES = (torch.float32, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A weight [out, in], laid out by oneDNN."""

    held: Tensor  # its bytes, uint8
    layout: bytes  # oneDNN's description of them
    shape: tuple[int, int]
    dtype: torch.dtype
    operand: Tensor  # what oneDNN is given: it points to `held` and does not keep it

    def plain(self) -> Tensor:
        """The weight read back, [out, in], in a tensor of its own."""
        found: Tensor = self.operand.to_dense()
        return found

    def times(self, rows: Tensor, bias: Tensor | None) -> Tensor:
        """x W^T + bias, [n, in] to [n, out]."""
        out: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self.operand, bias, "none", [], "")
        return out

    def part(self, start: int, like: PackedWeight) -> PackedWeight:
        """The outputs from `start` on that `like` holds too, read from here; `like` itself where its bytes differ."""
        at = start * self.held.nbytes // self.shape[0]
        here = self.held[at : at + like.held.nbytes]
        return like.moved(here) if torch.equal(here, like.held) else like

    def moved(self, held: Tensor) -> PackedWeight:
        """The same weight, its bytes being read from here."""
        return replace(self, held=held, operand=_operand(held, self.layout, self.shape, self.dtype))


class PackedLinear(nn.Module):
    """A linear layer with such a weight, which never trains. If it is tied, an embedding's weight is laid out again."""

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
    """The weight [out, in] in this layout, in memory of its own. Raises RuntimeError where torch has none for it."""
    made = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), ROWS_HINT)
    layout = bytes(torch.ops.mkldnn._get_mkldnn_serialized_md(made).tolist())
    held = torch.empty(torch.ops.mkldnn._nbytes(made), dtype=torch.uint8)
    ctypes.memmove(held.data_ptr(), torch.ops.mkldnn.data_ptr(made), held.nbytes)
    shape = (weight.shape[0], weight.shape[1])
    return PackedWeight(held, layout, shape, weight.dtype, _operand(held, layout, shape, weight.dtype))


def packed_as_one(weights: list[PackedWeight]) -> PackedWeight:
    """One weight whose outputs are those of all, one after the other; of their own bytes where they lie so."""
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
    """Whether weights are laid out so. Decided by what the machine can, not by timing: equal runs stay equal."""
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
    """oneDNN's tensor over bytes that lie there, by the interface through which compiled models get theirs."""
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
