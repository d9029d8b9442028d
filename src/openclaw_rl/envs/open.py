"""The one door to environments: a kind and a source of tasks in, an environment out."""

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
    """What an agent acts in."""

    TERMINAL = "terminal"
    SOFTWARE = "software"
    TOOLS = "tools"
    SCREEN = "screen"


@dataclass(frozen=True, slots=True)
class EnvOptions:
    """What every kind of environment is bounded by."""

    command_s: float = 60.0  # one command, or one call of a tool
    output_characters: int = 8_000  # of each call, half from the start and half from the end
    most_actions: int = 16  # of one step; what is beyond is refused, not done
    pictures: bool = False  # a screen as a PNG besides its tree, for models that see
    records: bool = False  # a screen as a PNG for the record, which the agent is not shown
    score_steps: bool = False  # in a shell: run the tests on a fork after each step; what it gained is its score

    def __post_init__(self) -> None:
        if self.command_s <= 0 or self.output_characters < 100 or self.most_actions < 1:
            raise ConfigError(
                f"an environment cannot work with {self.command_s} s a command, {self.output_characters} characters of "
                f"output and {self.most_actions} actions a step",
                fix="give more than 0 s, at least 100 characters and at least one action",
            )


# A module is imported when its kind is opened; it holds `open_kind(source, boxes, options) -> Env`.
MODULES = {kind: f"openclaw_rl.envs.{kind}.env" for kind in EnvKind}


def open_env(kind: EnvKind | str, source: TaskSource, boxes: Boxes | None, *, options: EnvOptions | None = None) -> Env:
    """An environment for the tasks of a source: one episode at a time, as many after each other as you like.

    Many environments may share a source and boxes, and should: what a source prepared for one episode serves the next.
    Closing an environment closes neither. ConfigError where the kind is unknown, or needs boxes and got none.
    """
    try:
        module = MODULES[EnvKind(kind)]
    except ValueError as problem:
        known = ", ".join(EnvKind)
        raise ConfigError(f"{kind!r} is not a kind of environment", fix=f"give one of: {known}") from problem
    opener: Callable[[TaskSource, Boxes | None, EnvOptions], Env] = import_module(module).open_kind
    return opener(source, boxes, options or EnvOptions())
