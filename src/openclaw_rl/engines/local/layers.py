"""Linear layers and norms in forms that are fast on this machine, with the adapters' share added."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from openclaw_rl.engines.local.adapters import AdapterPass, LinearShape, LinearSlice, Stack
from openclaw_rl.weights.forms import (
    LowBitsLinear,
    LowBitsWeight,
    PackedLinear,
    PackedWeight,
    joined,
    pack,
    packed_as_one,
)
from openclaw_rl.weights.shared import OneLinear

FEW = 3  # rows below which a product is a matter of reading the weight
WIDTHS = (1, 8, 16, 64)  # what is timed
WORTH_A_COPY = 0.8  # of the time of the form that processes share: another form needs memory of this process alone
Weight = Tensor | LowBitsWeight | PackedWeight
EPS_NAMES = ("variance_epsilon", "eps", "epsilon")


class LinearForm(Protocol):
    """A linear in one of its forms."""

    def __call__(self, flat: Tensor, onto: Tensor | None = None) -> Tensor:
        """flat W^T + bias [rows, out], added to `onto` if given; `onto` itself stays as it is."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """The form for fewer than three rows, and for more: `plain`, `transposed` or `packed`."""

    few: str
    many: str

    def __str__(self) -> str:
        """As the log shows it."""
        return self.few if self.few == self.many else f"{self.few}/{self.many}"


class FastLinear(nn.Module):
    """A linear layer for inference."""

    def __init__(self, weight: Weight, bias: Tensor | None, kernels: Kernels) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.kernels = kernels
        made = {kind: product(kind, weight, bias) for kind in {kernels.few, kernels.many}}
        self._few, self._many = made[kernels.few], made[kernels.many]
        self.stack: Stack | None = None
        self.adapters: AdapterPass | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        """x W^T + b, plus the adapters' share for the rows that use one."""
        return self.rows(inputs.reshape(-1, self.in_features)).view(*inputs.shape[:-1], self.out_features)

    def rows(self, flat: Tensor, onto: Tensor | None = None) -> Tensor:
        """The same for [rows, in], added to `onto` if given."""
        out = self._few(flat, onto) if flat.shape[0] < FEW else self._many(flat, onto)
        if self.stack is not None and self.adapters is not None and self.adapters.is_active:
            out = self.adapters.add(out, flat, self.stack)
        return out


class Linears:
    """Linear layers in the form that was timed fastest on this machine, with the adapters' share added.

    torch's own linear reads a weight [out, in] through MKL. On some CPUs oneDNN on a packed weight is twice as fast
    from 3 rows up, on others a plain product with a transposed copy is; so both are timed when a model is loaded.

    Contains all linears of a model in their fast forms, including those made of several of the model's own.
    """

    def __init__(self, adapters: AdapterPass, *, may_copy: bool) -> None:
        self.made: dict[str, FastLinear] = {}
        self.parts: dict[str, LinearSlice] = {}
        self.shapes: dict[str, LinearShape] = {}
        self._adapters = adapters
        self._may_copy = may_copy
        self._chosen: dict[tuple[int, int, bool], Kernels] = {}

    def make(self, owner: str, parts: Mapping[str, OneLinear]) -> FastLinear:
        """One linear for these, which read the same inputs; their outputs are side by side."""
        weight = _weight(list(parts.values()))
        bias = _bias(list(parts.values()))
        key = (weight.shape[0], weight.shape[1], bias is None)
        if key not in self._chosen:
            self._chosen[key] = fastest(weight, bias, may_copy=self._may_copy)
        fast = FastLinear(weight, bias, self._chosen[key])
        fast.adapters = self._adapters
        at = 0
        for index, (name, part) in enumerate(parts.items()):
            stop = at + part.out_features
            self.parts[name] = LinearSlice(owner, index, at, stop)
            if isinstance(part, LowBitsLinear) and isinstance(weight, LowBitsWeight):
                part.low = weight.rows(at, stop)  # not kept twice
            elif isinstance(part, PackedLinear) and isinstance(weight, PackedWeight):
                part.packed = weight.part(at, part.packed)
            elif isinstance(part, nn.Linear) and isinstance(weight, Tensor):
                part.weight.data = weight[at:stop]
            at = stop
        self.made[owner] = fast
        self.shapes[owner] = LinearShape(fast.in_features, fast.out_features, len(parts))
        return fast

    def kernels(self) -> tuple[str, ...]:
        """What was chosen, as the log shows it."""
        return tuple(sorted(f"{out}x{into}:{kernels}" for (out, into, _), kernels in self._chosen.items()))


def _weight(parts: list[OneLinear]) -> Weight:
    low = [part.low for part in parts if isinstance(part, LowBitsLinear)]
    packed = [part.packed for part in parts if isinstance(part, PackedLinear)]
    plain = [part.weight.data for part in parts if isinstance(part, nn.Linear)]
    if len(parts) not in (len(low), len(packed), len(plain)):
        raise ValueError("linears that are computed as one must all be stored in the same way")
    if low:
        return joined(low)
    if packed:
        return packed_as_one(packed)
    return plain[0] if len(plain) == 1 else torch.cat(plain)


def _bias(parts: list[OneLinear]) -> Tensor | None:
    own = next((part.bias for part in parts if part.bias is not None), None)
    if own is None:
        return None
    return torch.cat([own.new_zeros(part.out_features) if part.bias is None else part.bias.data for part in parts])


def product(kind: str, weight: Weight, bias: Tensor | None) -> LinearForm:
    """The linear in one of its forms, with its own copy of the weight if it needs one."""
    if isinstance(weight, Tensor) and kind == "packed":
        weight = pack(weight)
    if isinstance(weight, LowBitsWeight) or (isinstance(weight, PackedWeight) and kind == "packed"):
        stored = weight

        def run_stored(flat: Tensor, onto: Tensor | None = None) -> Tensor:
            out = stored.times(flat, bias)
            return out if onto is None else out.add_(onto)

        return run_stored
    plain = weight.plain() if isinstance(weight, PackedWeight) else weight
    if kind == "transposed":
        turned = plain.t().contiguous()

        def run_turned(flat: Tensor, onto: Tensor | None = None) -> Tensor:
            start = bias if onto is None else onto
            out = torch.mm(flat, turned) if start is None else torch.addmm(start, flat, turned)
            return out if bias is None or onto is None else out.add_(bias)

        return run_turned

    def run_plain(flat: Tensor, onto: Tensor | None = None) -> Tensor:
        out = F.linear(flat, plain, bias)
        return out if onto is None else out.add_(onto)

    return run_plain


def fastest(weight: Weight, bias: Tensor | None, *, may_copy: bool) -> Kernels:
    """The forms timed fastest for this weight; one form alone unless `may_copy` allows two copies of it.

    A packed weight is used as it is unless another form is much faster.
    """
    if isinstance(weight, LowBitsWeight):
        return Kernels(f"{weight.bits}bit", f"{weight.bits}bit")
    shared = weight if isinstance(weight, PackedWeight) else None
    plain = weight.plain() if isinstance(weight, PackedWeight) else weight
    if plain.device.type != "cpu":
        return Kernels("plain", "plain")
    times = {}
    for kind in ("plain", "transposed", "packed"):
        timed = _times(kind, shared or plain, plain, bias)
        if timed is not None:
            price = WORTH_A_COPY if shared is not None and kind == "packed" else 1.0
            times[kind] = [price * one for one in timed]
    few = {kind: timed[0] for kind, timed in times.items()}
    many = {kind: sum(timed[1:]) for kind, timed in times.items()}
    one = min(times, key=lambda kind: few[kind] + many[kind])
    if not may_copy:
        return Kernels(one, one)
    return Kernels(min(few, key=lambda kind: few[kind]), min(many, key=lambda kind: many[kind]))


def _times(kind: str, weight: Weight, plain: Tensor, bias: Tensor | None) -> list[float] | None:
    """Seconds at each width, weighted alike by row; None if the form fails or computes something else."""
    times = []
    try:
        run = product(kind, weight, bias)
        for width in WIDTHS:
            rows = torch.linspace(-1, 1, width * plain.shape[1], dtype=plain.dtype).view(width, -1)
            want = F.linear(rows, plain, bias)
            slack = 1e-5 if plain.dtype == torch.float32 else 3e-2
            if not torch.allclose(run(rows), want, rtol=slack, atol=slack * float(want.abs().max() + 1e-9)):
                return None
            times.append(_best_of(run, rows) / width**0.5)
    except (RuntimeError, AttributeError):  # private operators: absent or refusing on some builds
        return None
    return times


def _best_of(run: LinearForm, rows: Tensor, *, repeats: int = 5) -> float:
    best = float("inf")
    for _ in range(repeats):
        begin = time.perf_counter()
        run(rows)
        best = min(best, time.perf_counter() - begin)
    return best


class FastNorm(nn.Module):
    """x / rms(x) * weight in few calls; models' own code, and torch's, takes six small operations."""

    floor: Tensor

    def __init__(self, weight: Tensor, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.shape = tuple(weight.shape)  # [size], or [heads, size] if each head has its own weights
        self.eps = eps
        # x / sqrt(|x|^2 / d + eps) = sqrt(d) x / hypot(|x|, sqrt(d eps)): half the time of torch's, in one precision
        size = weight.shape[-1]
        self.register_buffer("floor", torch.tensor((size * eps) ** 0.5, dtype=weight.dtype, device=weight.device))
        self.scaled = nn.Parameter(weight * size**0.5, requires_grad=False)
        self.is_exact = weight.dtype == torch.float32

    def forward(self, inputs: Tensor) -> Tensor:
        """The normed inputs."""
        if not self.is_exact:
            return F.rms_norm(inputs, self.shape[-1:], None, self.eps) * self.weight
        length = torch.hypot(torch.linalg.vector_norm(inputs, dim=-1, keepdim=True), self.floor)
        return (inputs / length).mul_(self.scaled)


def replace_norms(model: nn.Module) -> int:
    """Replaces norms by FastNorm if it computes the same, Gemma's 1 + weight included; returns how many."""
    count = 0
    for name, module in list(model.named_modules()):
        if type(module).__name__.endswith("RMSNorm"):
            fast = equal_norm(module)
            if fast is not None:
                model.set_submodule(name, fast)
                count += 1
    return count


def equal_norm(module: nn.Module) -> FastNorm | None:
    """The module as a FastNorm, if that computes the same; else None."""
    weight = dict(module.named_parameters(recurse=False)).get("weight")
    eps = next((value for name in EPS_NAMES if isinstance(value := vars(module).get(name), float)), None)
    if weight is None or eps is None or weight.dim() != 1:
        return None
    inputs = torch.linspace(-2, 3, 3 * weight.shape[0], dtype=weight.dtype, device=weight.device).view(1, 3, -1)
    want = module(inputs)
    slack = 1e-5 if weight.dtype == torch.float32 else 2e-2
    for scale in (weight.detach(), (1.0 + weight.detach().float()).to(weight.dtype)):
        fast = FastNorm(scale.clone(), eps)
        got = fast(inputs)
        if got.dtype == want.dtype and torch.allclose(got, want, rtol=slack, atol=slack):
            return fast
    return None
