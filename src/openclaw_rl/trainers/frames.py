"""What a trainer's process is told and what it answers, over `core.pipe`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.core.adapter import Adapter, StepProgress, StepReport
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.trainers.settings import TrainerSettings


@dataclass(frozen=True, slots=True)
class OpenCommand:
    """The first message: load this model and go on from `resume`. Answered by Opened."""

    model: Path
    settings: TrainerSettings
    resume: Path | None


@dataclass(frozen=True, slots=True)
class StepCommand:
    """One step from the version in `resume`, on top of that in `under`. Answered by StepProgress now and then, and at
    last by a StepReport."""

    samples: tuple[Sample, ...]
    resume: Path | None
    under: Path | None = None
    gentleness: int = 0


@dataclass(frozen=True, slots=True)
class RebaseCommand:
    """Take the version in `resume` and put it on top of that in `under`, to be exported. Answered by Opened."""

    resume: Path
    under: Path | None


@dataclass(frozen=True, slots=True)
class ExportCommand:
    """Write what the last step made, or the last rebase. Answered by an Adapter."""

    folder: Path
    version: PolicyVersion


@dataclass(frozen=True, slots=True)
class Opened:
    """The model is loaded, or the version taken up."""


@dataclass(frozen=True, slots=True)
class TrainerFailure:
    """The last thing a process says: what went wrong, whether memory was lacking, and what to do about it."""

    problem: str
    fix: str = ""
    is_memory: bool = False


Call = OpenCommand | StepCommand | RebaseCommand | ExportCommand
Answer = Opened | StepProgress | StepReport | Adapter | TrainerFailure
