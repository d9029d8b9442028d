"""Weights in few bits once in memory: engine, trainer and judge map one file, whose pages the system shares.

The file lies in the user's cache folder and is named by a hash of what it holds, so that two processes share it exactly
if they made the same codes, and a file that was damaged is seen and written again. It is never changed once it has its
name. On a GPU, or where the file cannot be written, each process keeps its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from openclaw_rl.weights.lowbits import LowBitsLinear, LowBitsWeight

log = logging.getLogger(__name__)
UNUSED_S = 30 * 86400.0  # a file that nobody mapped for so long is removed when another is written


def cache_folder() -> Path:
    """Where the files are."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "openclaw-rl" / "weights"


def share(model: nn.Module, folder: Path) -> Path | None:
    """Puts the model's weights in few bits into a mapped file, and says which; None where they stay private."""
    layers = [one for one in model.modules() if isinstance(one, LowBitsLinear)]
    if not layers or layers[0].codes.device.type != "cpu":
        return None
    name = f"{_digest(_bytes_of(layers))}.bin"
    file = folder / name
    try:
        if not file.is_file() or f"{_digest(_pieces(file))}.bin" != name:
            _write(file, layers)
            _remove_unused(folder)
        os.utime(file)
        arena = torch.from_file(str(file), shared=True, size=file.stat().st_size, dtype=torch.uint8)
    except (OSError, RuntimeError) as error:  # torch says in the latter that a file cannot be mapped
        log.warning("weights in few bits are not shared between processes: %s", error)
        return None
    at = 0
    moved: list[list[Tensor]] = []
    for kind in ("codes", "scales"):
        views = []
        for layer in layers:
            own = layer.codes if kind == "codes" else layer.scales
            views.append(arena[at : at + own.nbytes].view(own.dtype).view(own.shape))
            at += own.nbytes
        moved.append(views)
    for layer, codes, scales in zip(layers, *moved, strict=True):
        layer.low = LowBitsWeight(codes, scales, (layer.out_features, layer.in_features))
    return file


def _bytes_of(layers: Iterable[LowBitsLinear]) -> Iterator[bytes]:
    """All codes and then all scales, in the order of the layers: q, k and v lie side by side, and are joined as views.

    The codes of a layer are a multiple of 32 bytes, so all numbers lie where they may.
    """
    layers = list(layers)
    for tensors in ([one.codes for one in layers], [one.scales for one in layers]):
        for one in tensors:
            yield one.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def _pieces(file: Path) -> Iterator[bytes]:
    with file.open("rb") as source:
        while piece := source.read(1 << 24):
            yield piece


def _digest(pieces: Iterable[bytes]) -> str:
    found = hashlib.blake2b(digest_size=20)
    for piece in pieces:
        found.update(piece)
    return found.hexdigest()


def _write(file: Path, layers: list[LowBitsLinear]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=file.parent, suffix=".new")
    try:
        with os.fdopen(handle, "wb") as target:
            for piece in _bytes_of(layers):
                target.write(piece)
        file.unlink(missing_ok=True)  # a damaged one
        with contextlib.suppress(FileExistsError):  # another process was first: its file is the same
            os.link(name, file)
    finally:
        Path(name).unlink(missing_ok=True)


def _remove_unused(folder: Path) -> None:
    """Removes files of models that are no longer used; one that is mapped stays until its process ends."""
    for path in folder.iterdir():
        if path.stat().st_mtime < time.time() - UNUSED_S:
            path.unlink(missing_ok=True)
