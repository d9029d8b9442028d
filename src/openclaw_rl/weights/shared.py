"""A frozen model's weights once in memory: engine, trainer, teacher and judge map one file, whose pages they share.

Linear layers are in it in the layout that engine and trainer multiply with, or in few bits, and everything else
unchanged. The file is in the user's cache folder. The first process makes it; others compare it byte by byte with the
weights they have read, and share it only if all are equal. On a GPU, for small models, and if the file
cannot be made, each process keeps its own: they compute the same.
"""

from __future__ import annotations

import hashlib
import logging
import mmap
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, TypeGuard

import torch
from torch import Tensor, nn

from openclaw_rl.weights.forms import CHOOSERS, LowBitsLinear, LowBitsWeight, PackedLinear, PackedWeight, can_pack, pack
from openclaw_rl.weights.mapped_files import make, mapped, remove_unused

log = logging.getLogger(__name__)
LEAST = 32 << 20  # bytes of weights below which a file is not worth the while
OneLinear = nn.Linear | LowBitsLinear | PackedLinear
TRIES = 3  # another process may make or remove the file meanwhile
SEEN = 64  # numbers of each tensor in the file's name; all bytes are compared in any case


def is_linear(module: nn.Module) -> TypeGuard[OneLinear]:
    """Whether it is a linear layer and nothing more: a class based on one may compute something else."""
    return type(module) is nn.Linear or isinstance(module, LowBitsLinear | PackedLinear)


def hold_once(model: nn.Module, folder: Path | None, *, least: int = LEAST) -> Path | None:
    """Lays a model's weights out and into a mapped file, and returns it; None if they stay private to this process.

    The model must be frozen. On a GPU nothing is done.
    """
    if any(one.device.type != "cpu" for one in model.parameters()):
        return None
    pieces = list(_pieces(model))
    size = sum(one.source().nbytes for one in pieces)
    if folder is not None and size >= least:
        file = folder / f"{_name(pieces)}.bin"
        try:
            remove_unused(folder)
            found = _found_or_made(file, pieces)
        except (OSError, ValueError) as error:
            log.warning("weights are not shared between processes: %s", error)
            found = None
        if found is not None:
            arena = torch.frombuffer(found[0], dtype=torch.uint8)
            for piece, place in zip(pieces, found[1], strict=True):
                piece.put(arena[place])
            return file
    for piece in pieces:
        piece.put(piece.bytes().clone())
    return None


def count_of(model: nn.Module) -> int:
    """How many parameters the model has, in whatever form."""
    own = sum(parameter.numel() for parameter in model.parameters())
    held = (module for module in model.modules() if isinstance(module, LowBitsLinear | PackedLinear))
    return own + sum(
        one.in_features * one.out_features for one in held if isinstance(one, LowBitsLinear) or not one.is_tied
    )


class _Piece(Protocol):
    align: int  # bytes

    def source(self) -> Tensor:
        """The tensor it comes from, for the file's name and size."""

    def bytes(self) -> Tensor:
        """The bytes for the file, uint8."""

    def put(self, held: Tensor) -> None:
        """Lets the model read these bytes from now on."""


@dataclass(slots=True)
class _Packed:
    model: nn.Module
    path: str
    linear: nn.Linear
    is_tied: bool
    made: PackedWeight | None = None
    align: int = 64

    def source(self) -> Tensor:
        return self.linear.weight.detach()

    def bytes(self) -> Tensor:
        packed = pack(self.source())
        self.made = packed.moved(packed.held[:0])  # its layout is kept, its bytes are not
        return packed.held

    def put(self, held: Tensor) -> None:
        assert self.made is not None
        self.model.set_submodule(self.path, PackedLinear(self.made.moved(held), self.linear.bias, is_tied=self.is_tied))


@dataclass(slots=True)
class _Parameter:
    owner: nn.Parameter
    align: int = 64

    def source(self) -> Tensor:
        return self.owner.detach()

    def bytes(self) -> Tensor:
        return _as_bytes(self.source())

    def put(self, held: Tensor) -> None:
        self.owner.data = held.view(self.owner.dtype).view(self.owner.shape)


@dataclass(slots=True)
class _LowBits:
    layer: LowBitsLinear
    is_codes: bool
    align: int = 1  # codes are a multiple of 32 bytes: q, k and v are adjacent, and are joined as views

    def source(self) -> Tensor:
        return self.layer.codes if self.is_codes else self.layer.scales

    def bytes(self) -> Tensor:
        return _as_bytes(self.source())

    def put(self, held: Tensor) -> None:
        low = self.layer.low
        own = held.view(self.source().dtype).view(self.source().shape)
        codes, scales = (own, low.scales) if self.is_codes else (low.codes, own)
        self.layer.low = LowBitsWeight(codes, scales, low.shape)


def _pieces(model: nn.Module) -> Iterator[_Piece]:
    """All weights: codes, scales, packed layers, and then every other parameter, each once."""
    modules = dict(model.named_modules())
    low = [one for one in modules.values() if isinstance(one, LowBitsLinear)]
    yield from (_LowBits(one, is_codes) for is_codes in (True, False) for one in low)
    linears = {
        path: one
        for path, one in modules.items()
        if type(one) is nn.Linear
        and path.rpartition(".")[2] not in CHOOSERS
        and can_pack(one.weight.device, one.weight.dtype)
    }
    packed = {id(one) for one in linears.values()}
    left: dict[int, nn.Parameter] = {}
    for module in modules.values():
        for name, parameter in module.named_parameters(recurse=False):
            if name != "weight" or id(module) not in packed:
                left[id(parameter)] = parameter
    yield from (_Packed(model, path, one, id(one.weight) in left) for path, one in linears.items())
    yield from (_Parameter(one) for one in left.values() if one.numel())


def _as_bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().view(-1).view(torch.uint8)


def _name(pieces: list[_Piece]) -> str:
    """The file's name: the same for equal weights. Other weights may share it, which the comparison detects."""
    found = hashlib.blake2b(f"{torch.__version__} {platform.node()}".encode(), digest_size=20)
    for piece in pieces:
        source = piece.source()
        found.update(f"{tuple(source.shape)} {source.dtype} {piece.align}".encode())
        found.update(_as_bytes(source.reshape(-1)[:SEEN]).numpy().tobytes())
    return found.hexdigest()


def _found_or_made(file: Path, pieces: list[_Piece]) -> tuple[mmap.mmap, list[slice]] | None:
    """The file's bytes, and the place of each piece in them."""
    for _ in range(TRIES):
        held = mapped(file)
        if held is not None:
            places = _places_if_equal(held, pieces)
            if places is not None:
                return held, places
            log.info("another model's or damaged weights are made again file=%s", file)
            file.unlink(missing_ok=True)
        places = []
        made = make(file, lambda target, places=places: places.extend(_write(target, pieces)))  # type: ignore[misc]
        if made is not None:
            return made, places
    return None


def _write(target: BinaryIO, pieces: list[_Piece]) -> Iterator[slice]:
    at = 0
    for piece in pieces:
        start = -(-at // piece.align) * piece.align
        target.write(bytes(start - at))
        own = piece.bytes()
        target.write(own.numpy().data)
        at = start + own.nbytes
        yield slice(start, at)


def _places_if_equal(held: mmap.mmap, pieces: list[_Piece]) -> list[slice] | None:
    """The place of each piece, if all bytes are those that would have been written."""
    there = torch.frombuffer(held, dtype=torch.uint8)
    places: list[slice] = []
    at = 0
    for piece in pieces:
        start = -(-at // piece.align) * piece.align
        own = piece.bytes()
        at = start + own.nbytes
        if at > len(there) or not torch.equal(there[start:at], own):
            return None
        places.append(slice(start, at))
    return places if at == len(there) else None
