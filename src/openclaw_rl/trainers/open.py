"""Opens a trainer by its kind; the only place that lists the kinds."""

from __future__ import annotations

from pathlib import Path

from openclaw_rl.core.inside import HANDED_BACK, remove
from openclaw_rl.core.protocols import Trainer
from openclaw_rl.trainers.external.trainer import ExternalTrainer
from openclaw_rl.trainers.process import TrainerProcess
from openclaw_rl.trainers.settings import TrainerSettings


def open_trainer(model: Path, settings: TrainerSettings, home: Path) -> Trainer:
    """The trainer of the model in this folder; a local one starts its process at the first call.

    What an external one had sent to a server that was killed is removed, whatever the kind is now. Raises StoreError.
    """
    remove(home, home / HANDED_BACK)
    if settings.kind == "external":
        return ExternalTrainer(model, settings, home / HANDED_BACK)
    return TrainerProcess(model, settings)
