"""A linear layer whose own weights are frozen, with or without LoRA weights beside them.

In float32 on a CPU the frozen weights run through oneDNN on a layout made once, forward and backward: torch's own
float32 product goes to MKL, which is half as fast on AMD.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.nn import functional

from openclaw_rl.weights.lowbits import LowBitsLinear, LowBitsWeight

ROWS_HINT = 512  # what the packed layout is made for


class FrozenProduct(Protocol):
    """x W^T + bias for a frozen W, and g W for its gradient."""

    shape: tuple[int, int]

    def forward(self, rows: Tensor) -> Tensor:
        """[n, in] to [n, out], in a tensor of its own."""
        ...

    def backward(self, grad: Tensor) -> Tensor:
        """[n, out] to [n, in], in a tensor of its own."""
        ...


class LowBitsMatmul:
    """The product with a weight in few bits, which is read back for each pass and not kept."""

    def __init__(self, weight: LowBitsWeight, bias: Tensor | None) -> None:
        self.shape = weight.shape
        self._weight, self._bias = weight, bias

    def forward(self, rows: Tensor) -> Tensor:
        """[n, in] to [n, out], in a tensor of its own."""
        return functional.linear(rows, self._weight.plain(rows.dtype), self._bias)

    def backward(self, grad: Tensor) -> Tensor:
        """[n, out] to [n, in], in a tensor of its own."""
        return grad @ self._weight.plain(grad.dtype)


class FrozenMatmul(nn.Module):
    """x W^T + bias for a frozen W, and g W for its gradient.

    What is not packed are parameters that never train: ranks may divide them.
    """

    def __init__(self, linear: nn.Linear, *, is_packed: bool) -> None:
        super().__init__()
        linear.requires_grad_(False)
        self.shape = (linear.out_features, linear.in_features)
        self._packed: tuple[Tensor, Tensor] | None = None
        self.weight, self.bias = linear.weight, linear.bias
        if is_packed:
            held = linear.weight.detach()
            self._packed = _packed(held), _packed(held.t().contiguous())
            self.weight = nn.Parameter(held.new_empty(0), requires_grad=False)

    def forward(self, rows: Tensor) -> Tensor:
        """[n, in] to [n, out], in a tensor of its own."""
        if self._packed is None:
            return functional.linear(rows, self.weight, self.bias)
        return _run(rows, self._packed[0], self.bias)

    def backward(self, grad: Tensor) -> Tensor:
        """[n, out] to [n, in], in a tensor of its own."""
        if self._packed is None:
            return grad @ self.weight
        return _run(grad, self._packed[1], None)


class Frozen(nn.Module):
    """A linear layer that never trains: an output head, or one that no target names."""

    def __init__(self, linear: nn.Linear | LowBitsLinear, *, is_packed: bool) -> None:
        super().__init__()
        self.product = product_of(linear, is_packed=is_packed)
        self.out_features, self.in_features = self.product.shape

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] to [..., out]."""
        out: Tensor = _FrozenLinear.apply(x, self.product)  # type: ignore[no-untyped-call]
        return out


@dataclass(frozen=True, slots=True)
class FrozenLoraTerm:
    """A frozen share beneath the trained one, in the layer's own number format: x a^T b^T, its scale folded into b."""

    a: Tensor  # [rank, in]
    b: Tensor  # [out, rank]


class Lora(nn.Module):
    """A frozen linear layer plus (alpha / rank) * B A, and what is `under` that where there is anything.

    `is_on` False gives the base model's layer.
    """

    def __init__(self, linear: nn.Linear | LowBitsLinear, *, rank: int, scale: float, is_packed: bool) -> None:
        super().__init__()
        self.product = product_of(linear, is_packed=is_packed)
        self.out_features, self.in_features = self.product.shape
        self.scale = scale
        self.is_on = True
        self.under: FrozenLoraTerm | None = None
        device = linear.codes.device if isinstance(linear, LowBitsLinear) else linear.weight.device
        self.a = nn.Parameter(torch.zeros(rank, self.in_features, device=device))
        self.b = nn.Parameter(torch.zeros(self.out_features, rank, device=device))

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] to [..., out]."""
        if not self.is_on:
            base: Tensor = _FrozenLinear.apply(x, self.product)  # type: ignore[no-untyped-call]
            return base
        out: Tensor = _LoraLinear.apply(x, self.a, self.b, self)  # type: ignore[no-untyped-call]
        return out


def product_of(linear: nn.Linear | LowBitsLinear, *, is_packed: bool) -> FrozenMatmul | LowBitsMatmul:
    """The frozen product of a linear layer."""
    if isinstance(linear, LowBitsLinear):
        return LowBitsMatmul(linear.low, None if linear.bias is None else linear.bias.detach())
    return FrozenMatmul(linear, is_packed=is_packed)


def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether oneDNN's packed products may be used. Decided by kind, not by timing: equal runs stay equal."""
    return device.type == "cpu" and dtype is torch.float32 and torch._C._has_mkldnn


class _FrozenContext(FunctionCtx):
    product: FrozenProduct


class _FrozenLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _FrozenContext, x: Tensor, product: FrozenProduct) -> Tensor:
        ctx.product = product
        return product.forward(x.reshape(-1, x.shape[-1])).view(*x.shape[:-1], product.shape[0])

    @staticmethod
    def backward(ctx: _FrozenContext, grad: Tensor) -> tuple[Tensor, None]:
        rows = grad.reshape(-1, grad.shape[-1])
        return ctx.product.backward(rows).view(*grad.shape[:-1], ctx.product.shape[1]), None


class _LoraContext(FunctionCtx):
    layer: Lora
    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]


class _LoraLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _LoraContext, x: Tensor, a: Tensor, b: Tensor, layer: Lora) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        low = rows @ a.to(rows.dtype).t()  # [n, rank]
        out = layer.product.forward(rows).addmm_(low, b.to(rows.dtype).t(), alpha=layer.scale)
        if layer.under is not None:
            out.addmm_(rows @ layer.under.a.t(), layer.under.b.t())
        ctx.layer = layer
        ctx.save_for_backward(rows, low, a, b)
        return out.view(*x.shape[:-1], layer.out_features)

    @staticmethod
    def backward(ctx: _LoraContext, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        rows, low, a, b = ctx.saved_tensors
        g = grad.reshape(-1, grad.shape[-1])
        g_low = (g @ b.to(g.dtype)).mul_(ctx.layer.scale)  # [n, rank]
        grad_a = (g_low.t() @ rows).to(a.dtype)
        grad_b = (g.t() @ low).mul_(ctx.layer.scale).to(b.dtype)
        if not ctx.needs_input_grad[0]:
            return None, grad_a, grad_b, None
        grad_x = ctx.layer.product.backward(g).addmm_(g_low, a.to(g.dtype))
        under = ctx.layer.under
        if under is not None:
            grad_x.addmm_(g @ under.b, under.a)
        return grad_x.view(*grad.shape[:-1], ctx.layer.in_features), grad_a, grad_b, None


def _packed(weight: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS_HINT)
    return packed


def _run(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    out: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
    return out
