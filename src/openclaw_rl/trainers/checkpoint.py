"""What a trainer writes beside an adapter so that training goes on from there, bit for bit."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from openclaw_rl.core.adapter import CONFIG, WEIGHTS
from openclaw_rl.core.message import Json
from openclaw_rl.core.version import PolicyVersion, parse_version
from openclaw_rl.errors import AdapterError

STATE = "trainer_state.safetensors"
FACTS = "trainer_state.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An adapter and the trainer behind it.

    `state` holds the optimiser's moments and, for that teacher, the moving average, by name; it is empty for an adapter
    that no trainer of ours wrote. `version` is None there too.
    """

    weights: Mapping[str, Tensor]
    state: Mapping[str, Tensor]
    steps: int
    version: PolicyVersion | None


def write(folder: Path, checkpoint: Checkpoint, config: Mapping[str, Json], settings: Mapping[str, Json]) -> None:
    """Writes the four files and has them on the disk before it returns. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    facts: dict[str, Json] = {
        "format": FORMAT,
        "version": str(checkpoint.version),
        "steps": checkpoint.steps,
        "settings": dict(settings),
    }
    save_file(_on_cpu(checkpoint.weights), folder / WEIGHTS, metadata={"format": "pt"})
    save_file(_on_cpu(checkpoint.state), folder / STATE, metadata={"format": "pt"})
    (folder / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", "utf-8")
    (folder / FACTS).write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n", "utf-8")
    for path in (*(folder / name for name in (WEIGHTS, STATE, CONFIG, FACTS)), folder, folder.parent):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read(folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> Checkpoint:
    """What a folder holds. Raises AdapterError where it cannot be read or does not fit a model of these shapes."""
    try:
        weights = load_file(folder / WEIGHTS)
        state = load_file(folder / STATE) if (folder / STATE).exists() else {}
        facts = json.loads((folder / FACTS).read_text("utf-8")) if (folder / FACTS).exists() else {}
        steps, named = int(facts.get("steps", 0)), facts.get("version")
        version = None if named is None else parse_version(str(named))
    except (OSError, SafetensorError, ValueError, AttributeError) as problem:
        raise AdapterError(
            f"{folder} holds no adapter to go on from ({problem})", fix="roll back to an earlier version"
        ) from problem
    if {name: tuple(tensor.shape) for name, tensor in weights.items()} != dict(shapes):
        raise AdapterError(
            f"the adapter in {folder} does not fit this model and rank", fix="train it with the settings it was made by"
        )
    if not all(bool(tensor.isfinite().all()) for tensor in (*weights.values(), *state.values())):
        raise AdapterError(f"the adapter in {folder} is not finite", fix="roll back to an earlier version")
    return Checkpoint(weights, state, steps, version)


def lora_config(base: str, targets: list[str], *, rank: int, alpha: float) -> dict[str, Json]:
    """PEFT's adapter_config.json for plain LoRA; fields left out have PEFT's defaults."""
    return {
        "base_model_name_or_path": base,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "modules_to_save": None,
        "peft_type": "LORA",
        "r": rank,
        "target_modules": [*targets],
        "task_type": "CAUSAL_LM",
        "use_dora": False,
        "use_rslora": False,
    }


def _on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
