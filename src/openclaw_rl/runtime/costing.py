"""The facts about a step's cost before the first: its time limit, and the settings that decide its speed."""

from __future__ import annotations

import zlib

import msgspec

from openclaw_rl.config import Config
from openclaw_rl.train.costs import Costs
from openclaw_rl.trainers.settings import TrainerSettings

NO_SPEED = ("kind", "lease_s", "timeout_s", "seed", "nice")  # settings that do not affect a step's speed


def costs_of(config: Config) -> Costs:
    """An empty record of costs for these settings."""
    trainer = config.trainer
    settings = {name: value for name, value in msgspec.to_builtins(trainer).items() if name not in NO_SPEED}
    return Costs(
        limit_s=config.train.step_share * trainer.timeout_s,
        updates=trainer.updates if _has_several(trainer) else 1,
        reads_all=trainer.prompts == "exact" or (trainer.prompts == "auto" and not _is_constant(trainer)),
        means=float(zlib.crc32(msgspec.json.encode([config.model, settings], order="deterministic"))),
    )


def _has_several(trainer: TrainerSettings) -> bool:
    """Whether a step has several updates: toward a teacher, not for a score."""
    return trainer.method.weights.distill > 0


def _is_constant(trainer: TrainerSettings) -> bool:
    return trainer.parameters == "lora" and trainer.method.moves_to_target
