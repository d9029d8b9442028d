"""An exercise: a task that a small agent can do in a few steps, and how a script goes about it, well or badly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from openclaw_rl.core.message import Json


class Setting(StrEnum):
    """The four settings, named as environments are."""

    TERMINAL = "terminal"
    TOOLS = "tools"
    SOFTWARE = "software"
    SCREEN = "screen"


# How often a scripted agent does the right thing. It must be far more often than any one wrong thing: where two repairs
# were possible and the right one was shown in three of five demonstrations, the model learned nothing but that one of
# the two stands there, and reinforcement found nothing to make more of.
SKILL: dict[Setting, float] = {
    Setting.TERMINAL: 0.4,
    Setting.TOOLS: 0.4,
    Setting.SOFTWARE: 0.4,
    Setting.SCREEN: 0.45,
}


@dataclass(frozen=True, slots=True)
class Move:
    """A call of a tool, and what it shows: the printed `output` and the exit status; without one, `output` is all."""

    tool: str
    arguments: Mapping[str, Json] = field(default_factory=dict)
    output: str = ""
    status: int | None = 0


@dataclass(frozen=True, slots=True)
class Exercise:
    """One task. `attempts` are ways to go about it: the first succeeds, the others look alike and fail.

    `material` is what is written: the files of a task's folder by path (terminal), or a row's fields (the others).
    """

    setting: Setting
    family: str
    instruction: str
    attempts: tuple[tuple[Move, ...], ...]
    material: Mapping[str, Json]
    opening: str = ""  # what is seen at first beside the instruction

    def demonstrated(self, rng: Random, skill: float | None = None) -> tuple[Move, ...]:
        """What a scripted agent does: the right thing with this probability, else one of the wrong ones."""
        skill = SKILL[self.setting] if skill is None else skill
        return self.attempts[0] if rng.random() < skill else rng.choice(self.attempts[1:])


Family = Callable[[Random], Exercise]

WORDS = (
    "cedar", "maple", "amber", "river", "stone", "cloud", "tiger", "lemon", "piano", "candle", "harbor", "meadow",
    "copper", "silver", "garden", "window", "basket", "bridge", "castle", "desert", "forest", "island", "jungle",
    "kettle", "ladder", "marble", "needle", "orange", "pepper", "rabbit", "saddle", "temple", "valley", "walnut",
    "yellow", "zebra", "anchor", "beacon", "canyon", "dragon", "engine", "falcon", "goblet", "hammer", "insect",
    "jacket", "kitten", "lantern", "mirror", "napkin", "oyster", "parrot", "quartz", "ribbon", "salmon", "turtle",
    "umbrella", "velvet", "willow", "acorn", "bottle", "cactus", "daisy", "eagle", "flute", "grape", "honey", "igloo",
)  # fmt: skip


def bash(command: str, output: str = "", status: int = 0) -> Move:
    """A command in the box."""
    return Move("bash", {"command": command}, output, status)


SUBMIT = Move("submit", {}, "", None)


def words(rng: Random, count: int) -> list[str]:
    """So many different words."""
    return rng.sample(WORDS, count)
