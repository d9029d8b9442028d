"""Opens an environment of a kind for a source of tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module

from openclaw_rl.envs.box.sandbox import Boxes
from openclaw_rl.envs.task import Env
from openclaw_rl.envs.tasks.source import TaskSource
from openclaw_rl.errors import ConfigError


class EnvKind(StrEnum):
    """The kinds of environments."""

    TERMINAL = "terminal"
    SOFTWARE = "software"
    TOOLS = "tools"
    SCREEN = "screen"


@dataclass(frozen=True, slots=True)
class EnvOptions:
    """Limits and options of every kind of environment."""

    command_s: float = 60.0  # one command, or one call of a tool
    output_characters: int = 8_000  # of each call, half from the start and half from the end
    most_actions: int = 16  # of one step; further ones are refused
    pictures: bool = False  # a screen as a PNG in addition to its tree, for models that see
    records: bool = False  # a screen as a PNG for the record, which the agent does not see
    score_steps: bool = (
        False  # in a shell: run the tests on a fork after each step; the improvement is the step's score
    )

    def __post_init__(self) -> None:
        if self.command_s <= 0 or self.output_characters < 100 or self.most_actions < 1:
            raise ConfigError(
                f"an environment cannot work with {self.command_s} s a command, {self.output_characters} characters of "
                f"output and {self.most_actions} actions a step",
                fix="give more than 0 s, at least 100 characters and at least one action",
            )


# A module is imported when its kind is opened; it defines `open_kind(source, boxes, options) -> Env`.
MODULES = {kind: f"openclaw_rl.envs.{kind}.env" for kind in EnvKind}


def open_env(kind: EnvKind | str, source: TaskSource, boxes: Boxes | None, *, options: EnvOptions | None = None) -> Env:
    """An environment for the tasks of a source: one episode at a time, any number in sequence.

    Many environments may share a source and boxes, and should: the next episode uses what a source has prepared.
    Closing an environment closes neither. ConfigError if the kind is unknown, or needs boxes and got none.
    """
    try:
        module = MODULES[EnvKind(kind)]
    except ValueError as problem:
        known = ", ".join(EnvKind)
        raise ConfigError(f"{kind!r} is not a kind of environment", fix=f"give one of: {known}") from problem
    opener: Callable[[TaskSource, Boxes | None, EnvOptions], Env] = import_module(module).open_kind
    return opener(source, boxes, options or EnvOptions())
