"""An exercise: a task that a small agent can do in a few steps, with a right way to do it and several wrong ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from openclaw_rl.core.message import Json


class Setting(StrEnum):
    """The four settings, with the names of environments."""

    TERMINAL = "terminal"
    TOOLS = "tools"
    SOFTWARE = "software"
    SCREEN = "screen"


# How often a scripted agent does the right thing. It must be far more often than any one wrong thing. When only two
# repairs were possible and the right one was in three of five demonstrations, the model learned nothing but that it is
# one of the two, and reinforcement learning had no preference to strengthen.
SKILL: dict[Setting, float] = {
    Setting.TERMINAL: 0.4,
    Setting.TOOLS: 0.4,
    Setting.SOFTWARE: 0.4,
    Setting.SCREEN: 0.45,
}


@dataclass(frozen=True, slots=True)
class Move:
    """A tool call and its result: the printed `output` and the exit status, or only `output` if `status` is None."""

    tool: str
    arguments: Mapping[str, Json] = field(default_factory=dict)
    output: str = ""
    status: int | None = 0


@dataclass(frozen=True, slots=True)
class Exercise:
    """One task. `attempts` are ways to do it: the first succeeds, the others look similar and fail.

    `material` is what is written of it: the files of the task's folder by path (terminal), or the fields of its row
    (other settings).
    """

    setting: Setting
    family: str
    instruction: str
    attempts: tuple[tuple[Move, ...], ...]
    material: Mapping[str, Json]
    opening: str = ""  # what the agent sees at first, after the instruction

    def demonstrated(self, rng: Random, skill: float | None = None) -> tuple[Move, ...]:
        """What a scripted agent does: the right attempt with the probability `skill`, else one of the wrong ones.

        Without a `skill` it is that of the setting in `SKILL`.
        """
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
    """A command that is run in the box, and its result."""
    return Move("bash", {"command": command}, output, status)


SUBMIT = Move("submit", {}, "", None)


def words(rng: Random, count: int) -> list[str]:
    """`count` different words of `WORDS`."""
    return rng.sample(WORDS, count)
