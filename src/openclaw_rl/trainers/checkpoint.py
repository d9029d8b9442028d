"""What a trainer writes next to an adapter so that training continues from there, bit for bit."""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from openclaw_rl.core.adapter import (
    CONFIG,
    FULL_CONFIG,
    FULL_WEIGHTS,
    TRAINER_FACTS,
    TRAINER_STATE,
    WEIGHTS,
    files_of,
    read_trainer_facts,
    seal,
)
from openclaw_rl.core.disk import sync
from openclaw_rl.core.manifest import FILE_NAME, read_manifest
from openclaw_rl.core.message import Json
from openclaw_rl.core.version import PolicyVersion, parse_version
from openclaw_rl.errors import AdapterError

log = logging.getLogger(__name__)

FILES = (WEIGHTS, CONFIG, FULL_WEIGHTS, FULL_CONFIG, TRAINER_STATE, TRAINER_FACTS)
FORMAT = 1
UNREADABLE_FIX = (
    "stop the server and run `openclaw-rl check --repair`, which moves a damaged trainer state to "
    "aside/, so that training "
    "continues from the weights; or roll back to an earlier version"
)
Identity = tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An adapter and the trainer's state.

    `state` contains the optimiser's moments and, for the ema teacher, the moving average, by name. For an adapter that
    another program wrote it is empty, and `version` is None. `upon` is the version these weights are based on; None for
    the base model.
    """

    weights: Mapping[str, Tensor]
    state: Mapping[str, Tensor]
    steps: int
    version: PolicyVersion | None
    upon: SharedAdapter | None = None


@dataclass(frozen=True, slots=True)
class SharedAdapter:
    """Frozen LoRA weights on which others are based, their B on the scale of those, and the version they are alone."""

    weights: Mapping[str, Tensor]
    rank: int
    version: PolicyVersion | None


def write(folder: Path, checkpoint: Checkpoint, config: Mapping[str, Json], settings: Mapping[str, Json]) -> None:
    """Writes the four files; they are on the disk when it returns. Raises OSError.

    The adapter is complete: weights on which the trained ones are based are written before them, as more ranks.
    """
    folder.mkdir(parents=True, exist_ok=True)
    upon = checkpoint.upon
    facts: dict[str, Json] = {
        "format": FORMAT,
        "version": str(checkpoint.version),
        "steps": checkpoint.steps,
        "settings": dict(settings),
        "under_rank": 0 if upon is None else upon.rank,
        "upon": None if upon is None or upon.version is None else str(upon.version),
    }
    names = (CONFIG, WEIGHTS) if "peft_type" in config else (FULL_CONFIG, FULL_WEIGHTS)
    save_file(_on_cpu(joined(upon, checkpoint.weights)), folder / names[1], metadata={"format": "pt"})
    save_file(_on_cpu(checkpoint.state), folder / TRAINER_STATE, metadata={"format": "pt"})
    (folder / names[0]).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", "utf-8")
    facts["seal"] = seal(folder, facts)
    (folder / TRAINER_FACTS).write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n", "utf-8")
    for path in (*(folder / name for name in (*names, TRAINER_STATE, TRAINER_FACTS)), folder, folder.parent):
        sync(path)


def read(folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> Checkpoint:
    """The checkpoint in a folder; if a version's state is gone, its weights with an empty state.

    Raises AdapterError if it cannot be read or does not fit a model of these shapes.
    """
    whole, facts = _adapter(folder)
    try:
        state = load_file(folder / TRAINER_STATE) if (folder / TRAINER_STATE).exists() else {}
        steps, rank = int(str(facts.get("steps", 0))), int(str(facts.get("under_rank", 0)))
        version, upon = (_version(facts.get(name)) for name in ("version", "upon"))
    except (OSError, SafetensorError, ValueError) as problem:
        raise _unreadable(folder, problem) from problem
    if version is not None and not (folder / TRAINER_FACTS).exists():
        log.warning("version=%s has no trainer state: its weights are used, with new moments", version)
    under, weights = parted(whole, rank)
    if {name: tuple(tensor.shape) for name, tensor in weights.items()} != dict(shapes):
        raise AdapterError(
            f"the weights in {folder} do not fit this model, its rank or trainer.parameters",
            fix="train with the settings they were made with, or roll back to version 0 first",
        )
    if not all(bool(tensor.isfinite().all()) for tensor in (*whole.values(), *state.values())):
        raise AdapterError(f"the adapter in {folder} is not finite", fix="roll back to an earlier version")
    return Checkpoint(weights, state, steps, version, SharedAdapter(under, rank, upon) if rank else None)


def read_under(folder: Path, *, scale: float) -> SharedAdapter:
    """The adapter of a folder as a base of others, which have this `scale`. Raises AdapterError."""
    weights, facts = _adapter(folder)
    try:
        config = json.loads((folder / CONFIG).read_text("utf-8"))
        rank, ratio = int(config["r"]), float(config["lora_alpha"]) / int(config["r"]) / scale
        version = _version(facts.get("version"))
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise _unreadable(folder, problem) from problem
    if ratio != 1.0:
        weights = {name: tensor * ratio if _is_up(name) else tensor for name, tensor in weights.items()}
    return SharedAdapter(weights, rank, version)


def joined(upon: SharedAdapter | None, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """One adapter that adds what both add: the rows of A concatenated, and the columns of B."""
    if upon is None:
        return dict(weights)
    under = upon.weights
    return {name: torch.cat([under[name].to(own), own], 1 if _is_up(name) else 0) for name, own in weights.items()}


def parted(whole: Mapping[str, Tensor], rank: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The first `rank` ranks of an adapter, and the others: the reverse of `joined`."""
    if rank == 0:
        return {}, dict(whole)
    first = {name: one[:, :rank] if _is_up(name) else one[:rank] for name, one in whole.items()}
    rest = {name: one[:, rank:] if _is_up(name) else one[rank:] for name, one in whole.items()}
    return first, rest


def _adapter(folder: Path) -> tuple[dict[str, Tensor], dict[str, Json]]:
    try:
        facts = read_trainer_facts(folder) or _facts_of_manifest(folder)
        return load_file(folder / files_of(folder)[1]), facts
    except (OSError, SafetensorError, ValueError) as problem:
        raise _unreadable(folder, problem) from problem


def _facts_of_manifest(folder: Path) -> dict[str, Json]:
    """The manifest's facts of a version whose trainer state is gone; empty for an adapter that is not a version.

    Raises OSError, ValueError.
    """
    if not (folder / FILE_NAME).exists():
        return {}
    manifest = read_manifest(folder)
    if manifest.upon is None:
        return {"version": str(manifest.version)}
    below = json.loads((folder.parent / str(manifest.upon) / CONFIG).read_text("utf-8"))
    if not isinstance(below, dict) or not isinstance(below.get("r"), int):
        raise ValueError(f"the rank of {manifest.upon}, on which it is based, is not known")
    return {"version": str(manifest.version), "under_rank": below["r"], "upon": str(manifest.upon)}


def _unreadable(folder: Path, problem: Exception) -> AdapterError:
    return AdapterError(f"{folder} has no adapter that training can continue from ({problem})", fix=UNREADABLE_FIX)


def _version(named: Json) -> PolicyVersion | None:
    return None if named is None or named == "None" else parse_version(str(named))


def _is_up(name: str) -> bool:
    return name.endswith(".lora_B.weight")


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


class CheckpointCache:
    """Checkpoints of the scopes trained last, kept in memory so that they need not be read from disk again.

    At most `most` checkpoints; the least recently used one is dropped.

    A checkpoint is found by the identity of its files, which stays when their folder is renamed and changes when they
    are written again.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Identity, Checkpoint] = OrderedDict()

    def read(self, folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> Checkpoint:
        """The checkpoint in a folder; see `read` above. Callers copy what they change."""
        identity = _identity(folder)
        found = None if identity is None else self._kept.get(identity)
        if found is None:
            found = read(folder, shapes)
        if identity is not None:
            self._put(identity, found)
        return found

    def put(self, folder: Path, written: Checkpoint) -> None:
        """Keeps what was just written there."""
        identity = _identity(folder)
        if identity is not None:
            self._put(identity, written)

    def __len__(self) -> int:
        return len(self._kept)

    def _put(self, identity: Identity, held: Checkpoint) -> None:
        self._kept[identity] = held
        self._kept.move_to_end(identity)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)


def _identity(folder: Path) -> Identity | None:
    try:
        found = [path.stat() for path in sorted(folder.iterdir()) if path.name in FILES]
    except OSError:
        return None
    return tuple((facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns) for facts in found)
