"""Whether another program's adapter can be served here. Reads files as bytes: no torch in the server's process."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from openclaw_rl.core.adapter import CONFIG, WEIGHTS
from openclaw_rl.errors import AdapterError

MOST_HEADER = 100_000_000
AT_ONCE = 1 << 22  # numbers that are checked together
PLAIN: dict[str, object] = {
    "bias": "none",
    "fan_in_fan_out": False,
    "use_dora": False,
    "use_rslora": False,
    "lora_bias": False,
    "modules_to_save": None,
    "rank_pattern": None,
    "alpha_pattern": None,
    "layer_replication": None,
    "trainable_token_indices": None,
    "target_parameters": None,
}
_LORA = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")
# How each type is read, and the bits of its exponent: all of them set means that a number is not finite.
_TYPES: dict[str, tuple[str, int]] = {"F32": ("<u4", 0x7F800000), "F16": ("<u2", 0x7C00), "BF16": ("<u2", 0x7F80)}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """The place of a tensor in a safetensors file: its type, its shape, and its bytes from `begin` to `end`."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def check_adapter(folder: Path, *, model: Path, rank: int, alpha: float, start: Path | None) -> None:
    """Raises AdapterError if the adapter in `folder` is not for this model, or is not finite.

    It must be plain LoRA of this rank and alpha, and adapt the same layers as the adapter in `start`, if there is one.
    """
    _check_config(folder / CONFIG, rank, alpha)
    tensors = stored_tensors(folder / WEIGHTS)
    layers = _layers(tensors, rank)
    if start is not None and stored_tensors(start / WEIGHTS).keys() != tensors.keys():
        raise AdapterError(
            "it adapts other layers than the adapter it should start from", fix="load that adapter and train it further"
        )
    known = _matrices(model)
    for name, (columns, rows) in layers.items():
        if name not in known:
            raise AdapterError(
                f"it adapts {name}, which is not a linear layer of this model",
                fix="train on the same base model as the server's",
            )
        if known[name] != (rows, columns):
            raise AdapterError(
                f"its {name} has the shape {(rows, columns)}, this model's {known[name]}",
                fix="train on the same base model as the server's",
            )
    _check_finite(folder / WEIGHTS, tensors)


def stored_tensors(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a safetensors file, by name. Raises AdapterError for a file that is not one, or is cut short."""
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if not 2 <= length <= min(MOST_HEADER, size - 8):
                raise ValueError("its header is cut short")
            header = json.loads(stream.read(length))
        found = {
            str(name): StoredTensor(
                str(one["dtype"]),
                tuple(int(each) for each in one["shape"]),
                8 + length + int(one["data_offsets"][0]),
                8 + length + int(one["data_offsets"][1]),
            )
            for name, one in header.items()
            if name != "__metadata__"
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as problem:
        raise AdapterError(
            f"{path.name} is not a complete safetensors file ({problem})", fix="send it again"
        ) from problem
    ends = sorted((one.begin, one.end) for one in found.values())
    if not ends or ends[-1][1] != size or any(left[1] != right[0] for left, right in pairwise(ends)):
        raise AdapterError(f"{path.name} is cut short, or contains no tensors", fix="send it again")
    return found


def _check_config(path: Path, rank: int, alpha: float) -> None:
    try:
        config = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as problem:
        raise AdapterError(f"{path.name} cannot be read ({problem})", fix="send it again") from problem
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise AdapterError(f"{path.name} is not that of a LoRA adapter", fix="train LoRA weights")
    if config.get("r") != rank or config.get("lora_alpha") != alpha:
        raise AdapterError(
            f"it has r {config.get('r')!r} and lora_alpha {config.get('lora_alpha')!r}, not {rank} and {alpha:g}",
            fix="use the rank and alpha that came with the batch",
        )
    for key, plain in PLAIN.items():
        value = config.get(key, plain)
        if value != plain and value not in ({}, []):
            raise AdapterError(f"it has {key} = {value!r}", fix=f"train it with {key} left at {plain!r}")


def _layers(tensors: Mapping[str, StoredTensor], rank: int) -> dict[str, tuple[int, int]]:
    """The layers it adapts, as name -> (in, out)."""
    halves: dict[str, dict[str, tuple[int, ...]]] = {"A": {}, "B": {}}
    for name, tensor in tensors.items():
        found = _LORA.fullmatch(name)
        if found is None or tensor.dtype not in _TYPES:
            raise AdapterError(
                f"it has {name} as {tensor.dtype}, which is not a LoRA weight of a linear layer in F32, F16 or BF16",
                fix="adapt only linear layers, and save them in float32",
            )
        halves[found[2]][found[1]] = tensor.shape
    downs, ups = halves["A"], halves["B"]
    if downs.keys() != ups.keys():
        raise AdapterError("some layers have only half of a LoRA pair", fix="send the complete adapter")
    for name in downs:
        if len(downs[name]) != 2 or len(ups[name]) != 2 or downs[name][0] != rank or ups[name][1] != rank:
            raise AdapterError(
                f"{name} has the shapes {downs[name]} and {ups[name]}, which is not rank {rank}",
                fix="use the rank that came with the batch",
            )
    return {name: (downs[name][1], ups[name][0]) for name in downs}


def _matrices(model: Path) -> dict[str, tuple[int, ...]]:
    """The weight matrices of the base model, as name -> (out, in)."""
    return {
        name.removesuffix(".weight"): tensor.shape
        for path in sorted(model.glob("*.safetensors"))
        for name, tensor in stored_tensors(path).items()
        if name.endswith(".weight") and len(tensor.shape) == 2
    }


def _check_finite(path: Path, tensors: Mapping[str, StoredTensor]) -> None:
    for name, tensor in tensors.items():
        kind, exponent = _TYPES[tensor.dtype]
        numbers = int(np.prod(tensor.shape))
        if numbers * np.dtype(kind).itemsize != tensor.end - tensor.begin:
            raise AdapterError(f"{name} is not as large as its shape says", fix="send it again")
        if not all(_is_finite(part, exponent) for part in _parts(path, kind, tensor.begin, numbers)):
            raise AdapterError(f"{name} contains numbers that are not finite", fix="train with a smaller learning rate")


def _parts(path: Path, kind: str, begin: int, numbers: int) -> Iterable[np.ndarray]:
    with path.open("rb") as stream:
        stream.seek(begin)
        for done in range(0, numbers, AT_ONCE):
            yield np.fromfile(stream, kind, min(AT_ONCE, numbers - done))


def _is_finite(bits: np.ndarray, exponent: int) -> bool:
    return not bool(((bits & exponent) == exponent).any())
