"""Reading an adapter in PEFT's format, and refusing what would not be computed as PEFT would."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from torch import Tensor

from openclaw_rl.core.adapter import CONFIG, WEIGHTS, Adapter, digest_of_folder
from openclaw_rl.errors import AdapterError

PREFIX = "base_model.model."
PICKLED = "adapter_model.bin"  # what older versions of peft wrote; never opened
PLAIN = {
    "target_parameters": None,  # weights of experts, which are no linear layers
    "bias": "none",
    "fan_in_fan_out": False,
    "use_dora": False,
    "lora_bias": False,
    "modules_to_save": None,
    "rank_pattern": None,
    "alpha_pattern": None,
    "layer_replication": None,
    "trainable_token_indices": None,
}


@dataclass(frozen=True, slots=True)
class AdapterWeights:
    """Checked weights: by linear, the pair (down [rank, in], up [out, rank]); the share is scale * up(down(x))."""

    linears: dict[str, tuple[Tensor, Tensor]]
    rank: int
    scale: float


def read_adapter(adapter: Adapter, linears: Mapping[str, tuple[int, int]]) -> AdapterWeights:
    """The adapter's weights, fit for linears given as name -> (in, out). Raises AdapterError.

    Reads, hashes and checks the files; runs beside the steps, in a thread.
    """
    config = _read_config(adapter)
    try:
        tensors = load_safetensors((adapter.folder / WEIGHTS).read_bytes())
    except (OSError, SafetensorError) as error:
        raise _bad(adapter, f"{WEIGHTS} cannot be read ({error})") from error
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not isinstance(rank, int) or rank < 1 or not isinstance(alpha, int | float):
        raise _bad(adapter, f"{CONFIG} has r {rank!r} and lora_alpha {alpha!r}")
    pairs = _pairs(adapter, tensors, linears, rank)
    _check_targets(adapter, config, set(pairs), set(linears))
    scale = alpha / math.sqrt(rank) if config.get("use_rslora") else alpha / rank
    return AdapterWeights(pairs, rank, float(scale))


def _bad(adapter: Adapter, problem: str) -> AdapterError:
    return AdapterError(
        f"adapter {adapter.version} in {adapter.folder}: {problem}",
        fix="export it again from the trainer, or roll back to an earlier version",
    )


def _read_config(adapter: Adapter) -> dict[str, object]:
    if not (adapter.folder / WEIGHTS).exists() and (adapter.folder / PICKLED).exists():
        raise AdapterError(
            f"adapter {adapter.version} in {adapter.folder} is a pickle ({PICKLED}), and reading a pickle can run code",
            fix=f"save it again with peft's save_pretrained, which writes {WEIGHTS}",
        )
    try:
        digest = digest_of_folder(adapter.folder)
        config = json.loads((adapter.folder / CONFIG).read_text())
    except (OSError, ValueError) as error:
        raise _bad(adapter, f"its files cannot be read ({error})") from error
    if digest != adapter.digest:
        raise _bad(adapter, f"its digest is {digest[:12]}..., not {adapter.digest[:12]}...: the files were changed")
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise AdapterError(
            f"adapter {adapter.version} in {adapter.folder} is not a LoRA adapter", fix="export it as LoRA"
        )
    for key, plain in PLAIN.items():
        value = config.get(key, plain)
        if value != plain and value not in ({}, []):
            raise AdapterError(
                f"adapter {adapter.version} has {key} = {value!r}, which the local engine does not compute",
                fix=f"train it with {key} left at {plain!r}",
            )
    return config


def _pairs(
    adapter: Adapter, tensors: Mapping[str, Tensor], linears: Mapping[str, tuple[int, int]], rank: int
) -> dict[str, tuple[Tensor, Tensor]]:
    downs: dict[str, Tensor] = {}
    ups: dict[str, Tensor] = {}
    for key, tensor in tensors.items():
        if key.endswith(".base_layer.weight"):
            continue  # peft writes the frozen weight of an adapted lm_head beside the adapter
        name, dot, _ = key.removeprefix(PREFIX).partition(".lora_")
        if key.endswith(".lora_A.weight") and dot:
            downs[name] = tensor
        elif key.endswith(".lora_B.weight") and dot:
            ups[name] = tensor
        else:
            raise _bad(adapter, f"it holds {key}, which is not a LoRA weight of a linear layer")
    if not downs or downs.keys() != ups.keys():
        raise _bad(adapter, "some linears have only half of a LoRA pair")
    for name, down in downs.items():
        if name not in linears:
            raise _bad(adapter, f"it adapts {name}, which is not a linear layer of this model")
        want = (rank, linears[name][0]), (linears[name][1], rank)
        have = tuple(down.shape), tuple(ups[name].shape)
        if have != want:
            raise _bad(adapter, f"{name} has shapes {have}, this model needs {want}")
    # all at once: reading runs beside the steps, which want the interpreter back
    if not torch.isfinite(torch.cat([tensor.float().flatten() for tensor in (*downs.values(), *ups.values())])).all():
        raise _bad(adapter, "it holds numbers that are not finite")
    return {name: (downs[name].float(), ups[name].float()) for name in downs}


def _check_targets(adapter: Adapter, config: Mapping[str, object], have: set[str], linears: set[str]) -> None:
    """Every linear the configuration names must have come with weights: a part of an adapter is another adapter."""
    if config.get("layers_to_transform") is not None or config.get("exclude_modules"):
        return
    targets = config.get("target_modules")
    if isinstance(targets, str):
        wanted = {name for name in linears if name != "lm_head"} if targets == "all-linear" else have
    elif isinstance(targets, list):
        wanted = {name for name in linears if any(name == t or name.endswith(f".{t}") for t in targets)}
    else:
        raise _bad(adapter, f"{CONFIG} has target_modules {targets!r}")
    if wanted - have:
        raise _bad(adapter, f"weights for {sorted(wanted - have)[0]} are missing")
