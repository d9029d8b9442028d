"""A linear layer with frozen weights, with or without LoRA weights.

On a CPU the frozen weights run through oneDNN in a layout that the engine may share. In bfloat16 the backward pass
unpacks them each time. In float32 they are laid out a second time: torch's own product uses MKL, which is half as fast
on AMD.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.nn import functional

from openclaw_rl.weights.forms import LowBitsLinear, LowBitsWeight, PackedWeight, pack
from openclaw_rl.weights.shared import OneLinear


class FrozenProduct(Protocol):
    """x W^T + bias for a frozen W, and g W for its gradient."""

    shape: tuple[int, int]

    def forward(self, rows: Tensor) -> Tensor:
        """[n, in] to [n, out], in a new tensor."""

    def backward(self, grad: Tensor) -> Tensor:
        """[n, out] to [n, in], in a new tensor."""


class LowBitsMatmul:
    """The product with a weight in few bits, which is dequantised for each pass and not kept."""

    def __init__(self, weight: LowBitsWeight, bias: Tensor | None) -> None:
        self.shape = weight.shape
        self._weight, self._bias = weight, bias

    def forward(self, rows: Tensor) -> Tensor:
        """[n, in] to [n, out], in a new tensor."""
        return functional.linear(rows, self._weight.plain(rows.dtype), self._bias)

    def backward(self, grad: Tensor) -> Tensor:
        """[n, out] to [n, in], in a new tensor."""
        return grad @ self._weight.plain(grad.dtype)


class PackedMatmul:
    """The product with a weight that oneDNN laid out."""

    def __init__(self, weight: PackedWeight, bias: Tensor | None) -> None:
        self.shape = weight.shape
        self._weight, self._bias = weight, bias
        self._turned = pack(weight.plain().t()) if weight.dtype is torch.float32 else None

    def forward(self, rows: Tensor) -> Tensor:
        """[n, in] to [n, out], in a new tensor."""
        return self._weight.times(rows, self._bias)

    def backward(self, grad: Tensor) -> Tensor:
        """[n, out] to [n, in], in a new tensor."""
        return grad @ self._weight.plain() if self._turned is None else self._turned.times(grad, None)


class FrozenMatmul(nn.Module):
    """The product with a plain weight: a parameter that never trains, which ranks may divide."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        linear.requires_grad_(False)
        self.shape = (linear.out_features, linear.in_features)
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, rows: Tensor) -> Tensor:
        """[n, in] to [n, out], in a new tensor."""
        return functional.linear(rows, self.weight, self.bias)

    def backward(self, grad: Tensor) -> Tensor:
        """[n, out] to [n, in], in a new tensor."""
        return grad @ self.weight


class Frozen(nn.Module):
    """A linear layer that never trains: an output head, or one that is not a target."""

    def __init__(self, linear: OneLinear) -> None:
        super().__init__()
        self.product = product_of(linear)
        self.out_features, self.in_features = self.product.shape

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] to [..., out]."""
        return _frozen(x, self.product)


@dataclass(frozen=True, slots=True)
class FrozenLoraTerm:
    """A frozen LoRA term under the trained one, in the layer's number format: x a^T b^T, its scale folded into b."""

    a: Tensor  # [rank, in]
    b: Tensor  # [out, rank]


class Lora(nn.Module):
    """A frozen linear layer plus (alpha / rank) * B A, plus the frozen term `under` that, if there is one.

    `is_on` False gives the base model's layer.
    """

    def __init__(self, linear: OneLinear, *, rank: int, scale: float) -> None:
        super().__init__()
        self.product = product_of(linear)
        self.out_features, self.in_features = self.product.shape
        self.scale = scale
        self.is_on = True
        self.under: FrozenLoraTerm | None = None
        device = next((one.device for one in (*linear.parameters(), *linear.buffers())), None)  # None: packed, on a CPU
        self.a = nn.Parameter(torch.zeros(rank, self.in_features, device=device))
        self.b = nn.Parameter(torch.zeros(self.out_features, rank, device=device))

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] to [..., out]."""
        if not self.is_on:
            return _frozen(x, self.product)
        rows: Tensor = _LoraLinear.apply(_rows(x), self.a, self.b, self)  # type: ignore[no-untyped-call]
        return rows.view(*x.shape[:-1], self.out_features)


def product_of(linear: OneLinear) -> FrozenMatmul | LowBitsMatmul | PackedMatmul:
    """The frozen product of a linear layer."""
    if isinstance(linear, nn.Linear):
        return FrozenMatmul(linear)
    bias = None if linear.bias is None else linear.bias.detach()
    return LowBitsMatmul(linear.low, bias) if isinstance(linear, LowBitsLinear) else PackedMatmul(linear.packed, bias)


def _rows(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


def _frozen(x: Tensor, product: FrozenProduct) -> Tensor:
    # reshaped out here: what autograd gets as a view from within a function, a model must not change in place
    rows: Tensor = _FrozenLinear.apply(_rows(x), product)  # type: ignore[no-untyped-call]
    return rows.view(*x.shape[:-1], product.shape[0])


class _FrozenContext(FunctionCtx):
    product: FrozenProduct


class _FrozenLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _FrozenContext, rows: Tensor, product: FrozenProduct) -> Tensor:
        ctx.product = product
        return product.forward(rows)

    @staticmethod
    def backward(ctx: _FrozenContext, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.product.backward(grad), None


class _LoraContext(FunctionCtx):
    layer: Lora
    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]


class _LoraLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _LoraContext, rows: Tensor, a: Tensor, b: Tensor, layer: Lora) -> Tensor:
        low = rows @ a.to(rows.dtype).t()  # [n, rank]
        out = layer.product.forward(rows).addmm_(low, b.to(rows.dtype).t(), alpha=layer.scale)
        if layer.under is not None:
            out.addmm_(rows @ layer.under.a.t(), layer.under.b.t())
        ctx.layer = layer
        ctx.save_for_backward(rows, low, a, b)
        return out

    @staticmethod
    def backward(ctx: _LoraContext, g: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        rows, low, a, b = ctx.saved_tensors
        g_low = (g @ b.to(g.dtype)).mul_(ctx.layer.scale)  # [n, rank]
        grad_a = (g_low.t() @ rows).to(a.dtype)
        grad_b = (g.t() @ low).mul_(ctx.layer.scale).to(b.dtype)
        if not ctx.needs_input_grad[0]:
            return None, grad_a, grad_b, None
        grad_x = ctx.layer.product.backward(g).addmm_(g_low, a.to(g.dtype))
        under = ctx.layer.under
        if under is not None:
            grad_x.addmm_(g @ under.b, under.a)
        return grad_x, grad_a, grad_b, None
