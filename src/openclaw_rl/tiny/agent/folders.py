"""Writes exercises as tasks in the formats that task sources read: folders in Harbor's layout, or JSON lines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from openclaw_rl.errors import ConfigError
from openclaw_rl.tiny.agent import demos
from openclaw_rl.tiny.agent.exercise import Exercise, Family, Setting

TRAIN, TEST, HELD_BACK = "train", "test", "held_back"
TRIES = 200  # to make an exercise that was not made before
WRITTEN = tuple(demos.FAMILIES)


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """How many tasks of a setting are made: to learn from, unseen ones of the same families, and of held back families.

    Raises ConfigError if one of the counts is below 1.
    """

    train: int = 512
    test: int = 48
    held_back: int = 16

    def __post_init__(self) -> None:
        if min(self.train, self.test, self.held_back) < 1:
            counts = f"{self.train}, {self.test} and {self.held_back}"
            raise ConfigError(f"the task counts are {counts}: each split has at least one task", fix="give 1 or more")


def setting_named(name: str) -> Setting:
    """The setting of that name. Raises ConfigError."""
    if name not in {setting.value for setting in WRITTEN}:
        raise ConfigError(f"no tasks are written for {name!r}", fix=f"choose among {', '.join(WRITTEN)}")
    return Setting(name)


def splits(setting: Setting, counts: TaskCounts, *, seed: int = 0) -> dict[str, list[Exercise]]:
    """The exercises of each split, from the families in turn. No exercise is in two splits. Raises ConfigError.

    Those of the test split are drawn first and with a seed of their own. So they stay the same, however many there are
    to learn from.
    """
    seen: set[str] = set()
    known, unseen, others = demos.FAMILIES[setting], demos.UNSEEN[setting], demos.UNSEEN_HELD_BACK[setting]
    test = drawn(unseen, counts.test, Random(f"{setting} test {seed}"), seen)
    held_back = drawn(others, counts.held_back, Random(f"{setting} held back {seed}"), seen)
    train = drawn(known, counts.train, Random(f"{setting} train {seed}"), seen)
    return {TRAIN: train, TEST: test, HELD_BACK: held_back}


def drawn(families: Mapping[str, Family], count: int, rng: Random, seen: set[str]) -> list[Exercise]:
    """`count` exercises, from the families in turn, none with a text in `seen`, to which their texts are added.

    Raises ConfigError if a family gives no new exercise in `TRIES` tries.
    """
    names, found = tuple(families), list[Exercise]()
    for number in range(count):
        family = families[names[number % len(names)]]
        for _ in range(TRIES):
            made = family(rng)
            if made.instruction + made.opening not in seen:
                break
        else:
            raise ConfigError(f"family {names[number % len(names)]} has no more exercises", fix="ask for fewer")
        seen.add(made.instruction + made.opening)
        found.append(made)
    return found


def write(folder: Path, setting: Setting, counts: TaskCounts, *, seed: int = 0) -> dict[str, Path]:
    """Writes a setting's tasks, and returns the folder of each split: `FOLDER/SETTING/SPLIT`."""
    found: dict[str, Path] = {}
    for split, exercises in splits(setting, counts, seed=seed).items():
        place = folder / setting / split
        place.mkdir(parents=True, exist_ok=True)
        named = [(f"{made.family}-{split}-{number:03d}", made) for number, made in enumerate(exercises)]
        if setting is Setting.TERMINAL:
            _write_folders(place, named)
        else:
            rows = [json.dumps({"id": name, **made.material}) for name, made in named]
            (place / f"{split}.jsonl").write_text("\n".join(rows) + "\n", "utf-8")
        found[split] = place
    return found


def _write_folders(place: Path, named: Sequence[tuple[str, Exercise]]) -> None:
    for name, made in named:
        files = {**made.material, "instruction.md": made.instruction + "\n"}
        for path, text in files.items():
            target = place / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(str(text), "utf-8")
