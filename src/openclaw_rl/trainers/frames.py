"""The messages to a trainer's process and its answers, over `core.pipe`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.core.adapter import Adapter, StepProgress, StepReport
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.trainers.settings import TrainerSettings

PLACE = "OPENCLAW_RL_RANK"


@dataclass(frozen=True, slots=True)
class OpenCommand:
    """The first message: load this model and continue from `resume`. Answered by Opened."""

    model: Path
    settings: TrainerSettings
    resume: Path | None


@dataclass(frozen=True, slots=True)
class StepCommand:
    """One step from the version in `resume`, based on the one in `under`. Answered by some StepProgress messages, and
    finally by a StepReport."""

    samples: tuple[Sample, ...]
    resume: Path | None
    under: Path | None = None
    gentleness: int = 0


@dataclass(frozen=True, slots=True)
class RebaseCommand:
    """Base the version in `resume` on the one in `under`, to be exported. Answered by Opened."""

    resume: Path
    under: Path | None


@dataclass(frozen=True, slots=True)
class ExportCommand:
    """Write the result of the last step or rebase. Answered by an Adapter."""

    folder: Path
    version: PolicyVersion


@dataclass(frozen=True, slots=True)
class Opened:
    """The model is loaded, or the version restored."""


@dataclass(frozen=True, slots=True)
class TrainerFailure:
    """The last message of a process: what went wrong, whether memory ran out, and what to do about it."""

    problem: str
    fix: str = ""
    is_memory: bool = False


def place_of(number: int, count: int, file: Path) -> str:
    """The value of PLACE in a rank's environment: "2/4:FILE" is the third of four, which meet through FILE."""
    return f"{number}/{count}:{file}"


def place_in(place: str) -> tuple[int, int, Path]:
    """The number, the count and the file of what `place_of` wrote."""
    numbers, _, file = place.partition(":")
    number, count = (int(part) for part in numbers.split("/"))
    return number, count, Path(file)


def is_follower() -> bool:
    """Whether this process is a rank of a trainer other than the first."""
    return place_in(os.environ[PLACE])[0] > 0 if PLACE in os.environ else int(os.environ.get("RANK", "0")) > 0


Call = OpenCommand | StepCommand | RebaseCommand | ExportCommand
Answer = Opened | StepProgress | StepReport | Adapter | TrainerFailure
