"""LoRA weights on disk, and what makes two folders the same adapter."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.core.version import PolicyVersion

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"


@dataclass(frozen=True, slots=True)
class Adapter:
    """A folder in PEFT's format, the digest of its two files, and the version it makes."""

    folder: Path
    digest: str
    version: PolicyVersion


def digest_of_folder(folder: Path) -> str:
    """SHA-256 over the weights and the configuration. Raises OSError where one is missing."""
    total = hashlib.sha256()
    for name in (CONFIG, WEIGHTS):
        total.update(name.encode())
        total.update((folder / name).read_bytes())
    return total.hexdigest()


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one optimiser step did.

    `took_step` is False where the batch held no signal, or the loss was not finite; `metrics` are numbers for the log
    and the manifest; `dropped` are (turn, reason) pairs of samples the trainer could not use.
    """

    took_step: bool
    metrics: dict[str, float]
    dropped: tuple[tuple[str, str], ...] = ()
    why: str = ""
