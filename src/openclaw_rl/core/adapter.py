"""A version's weights on disk (a LoRA adapter, or all weights of the model), and the digest that identifies them; also
the trainer's state next to them, with the seal over it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.core.message import Json
from openclaw_rl.core.version import PolicyVersion

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
FULL_WEIGHTS = "model.safetensors"
FULL_CONFIG = "config.json"
NO_NEARER = "no update, however small, came nearer to the teacher"  # why no step was taken
TRAINER_STATE = "trainer_state.safetensors"  # next to the weights: the trainer's own, which is optional
TRAINER_FACTS = "trainer_state.json"  # without both, training continues from the weights with new moments
GENTLENESS = "gentleness"  # a metric of a version: how many times its step's first learning rate was lowered
BULK = "*.safetensors"  # the weights, and the optimiser's moments that a trainer keeps next to them


@dataclass(frozen=True, slots=True)
class Adapter:
    """A folder in PEFT's format, or of a whole model, with the digest of its two files and its version."""

    folder: Path
    digest: str
    version: PolicyVersion


def is_full(folder: Path) -> bool:
    """Whether a folder contains a whole model instead of a LoRA adapter."""
    return not (folder / CONFIG).exists() and (folder / FULL_CONFIG).exists()


def files_of(folder: Path) -> tuple[str, str]:
    """The file names of a folder's configuration and weights."""
    return (FULL_CONFIG, FULL_WEIGHTS) if is_full(folder) else (CONFIG, WEIGHTS)


def digest_of_folder(folder: Path) -> str:
    """SHA-256 over the weights and the configuration. Raises OSError if one is missing."""
    total = hashlib.sha256()
    for name in files_of(folder):
        total.update(name.encode())
        with (folder / name).open("rb") as stream:
            while piece := stream.read(1 << 22):
                total.update(piece)
    return total.hexdigest()


@dataclass(frozen=True, slots=True)
class StepReport:
    """The result of one step.

    `took_step` is False if the batch held no signal, or the loss was not finite; `metrics` are numbers for the log
    and the manifest; `dropped` are (turn, reason) pairs of samples the trainer could not use.
    """

    took_step: bool
    metrics: dict[str, float]
    dropped: tuple[tuple[str, str], ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class StepProgress:
    """How far a step has come.

    `tokens` were read before the first update, in `reading_s` so far; `updates` of at most `most`
    were made and kept, in `updating_s`. `distance` is the share of the first distance to the teacher that is left, None
    if none was measured yet; the step ends when it reaches `enough`. `spent_s` is the time since the trainer was asked.
    """

    tokens: int = 0
    reading_s: float = 0.0
    updates: int = 0
    most: int = 0
    distance: float | None = None
    enough: float = 0.0
    updating_s: float = 0.0
    spent_s: float = 0.0


def seal(folder: Path, facts: Mapping[str, Json]) -> str:
    """SHA-256 over the facts and the files next to them; weights of a whole model have the version's own digest."""
    total = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name in (TRAINER_STATE, WEIGHTS, CONFIG):
        if (folder / name).is_file():
            with (folder / name).open("rb") as stream:
                total.update(hashlib.file_digest(stream, "sha256").digest())
    return total.hexdigest()


def read_trainer_facts(folder: Path) -> dict[str, Json]:
    """The facts in a version's folder; empty if it contains no state. Raises OSError, or ValueError for a bad seal."""
    if not (folder / TRAINER_FACTS).exists():
        if (folder / TRAINER_STATE).exists():
            raise ValueError(f"{TRAINER_FACTS} is missing next to {TRAINER_STATE}")
        return {}
    facts = json.loads((folder / TRAINER_FACTS).read_text("utf-8"))
    if not isinstance(facts, dict):
        raise ValueError(f"{TRAINER_FACTS} is not a table")
    if "seal" in facts and facts.pop("seal") != seal(folder, facts):
        raise ValueError("its files are not what was written")
    return facts


def problem_with_state(folder: Path) -> str | None:
    """What is wrong with the state next to sound weights; None if it is as written, or absent."""
    try:
        read_trainer_facts(folder)
    except (OSError, ValueError) as problem:
        missing = [name for name in (TRAINER_STATE, TRAINER_FACTS) if not (folder / name).exists()]
        return f"{missing[0]} is missing" if missing else str(problem)
    return None
