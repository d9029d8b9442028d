"""The tensors of a frozen model that processes may share on a GPU, by name, each of which can be replaced."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from openclaw_rl.weights.forms import LowBitsLinear, LowBitsWeight

SEEN = 64  # numbers of each tensor that tell one model from another; all bytes are compared in any case
PIECE = 32 << 20  # bytes that are copied to the GPU at once for a comparison


class WeightPart(Protocol):
    """One tensor of a model."""

    def tensor(self) -> Tensor:
        """The tensor as the model holds it now."""

    def put(self, tensor: Tensor) -> None:
        """Lets the model read this one from now on: of the same shape and number format."""


@dataclass(frozen=True, slots=True)
class ParameterPart:
    """A parameter."""

    owner: nn.Parameter

    def tensor(self) -> Tensor:
        """The parameter's tensor."""
        return self.owner.detach()

    def put(self, tensor: Tensor) -> None:
        """The parameter reads this tensor."""
        self.owner.data = tensor


@dataclass(frozen=True, slots=True)
class LowBitsPart:
    """Codes or scales of a layer in few bits."""

    layer: LowBitsLinear
    is_codes: bool

    def tensor(self) -> Tensor:
        """The codes, or the scales."""
        return self.layer.codes if self.is_codes else self.layer.scales

    def put(self, tensor: Tensor) -> None:
        """The layer reads this tensor."""
        low = self.layer.low
        codes, scales = (tensor, low.scales) if self.is_codes else (low.codes, tensor)
        self.layer.low = LowBitsWeight(codes, scales, low.shape)


def parts_of(model: nn.Module) -> dict[str, WeightPart]:
    """All weights by the model's own names; tied ones appear once."""
    return dict(_parts(model))


def _parts(model: nn.Module) -> Iterator[tuple[str, WeightPart]]:
    for name, parameter in model.named_parameters():
        if parameter.numel():
            yield name, ParameterPart(parameter)
    for path, module in model.named_modules():
        if isinstance(module, LowBitsLinear):
            yield f"{path}.codes", LowBitsPart(module, is_codes=True)
            yield f"{path}.scales", LowBitsPart(module, is_codes=False)


def label(parts: Mapping[str, WeightPart], place: str) -> str:
    """A name that is the same for equal weights in this place. Other weights may have it too."""
    found = hashlib.blake2b(f"{torch.__version__} {place}".encode(), digest_size=20)
    for name, part in sorted(parts.items()):
        tensor = part.tensor()
        found.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        first = tensor.reshape(-1) if tensor.is_contiguous() else tensor.flatten(0, -1)
        found.update(_as_bytes(first[:SEEN]).cpu().numpy().tobytes())
    return found.hexdigest()


def is_equal(own: Tensor, there: Tensor, *, piece: int = PIECE) -> bool:
    """Whether both tensors have the same bytes. `own` may be on another device; a piece of it at a time is copied."""
    if own.dtype != there.dtype or own.shape != there.shape:
        return False
    mine, theirs = (one.unsqueeze(0) if one.dim() == 0 else one for one in (own, there))
    rows = max(1, piece // max(1, mine.nbytes // max(1, len(mine))))
    return all(
        torch.equal(_as_bytes(ours).to(there.device), _as_bytes(other))
        for ours, other in zip(torch.split(mine, rows), torch.split(theirs, rows), strict=True)
    )


def _as_bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)
