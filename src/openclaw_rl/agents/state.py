"""The state of a training run on disk: groups under way, results by task, and costs."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from openclaw_rl.agents.curriculum import TaskMemory
from openclaw_rl.core.disk import unwritable
from openclaw_rl.errors import ConfigError

VERSION = 1


class OpenGroup(msgspec.Struct):
    """A group with unfinished attempts."""

    number: int
    task: str
    size: int
    seed: int


class RunTotals(msgspec.Struct):
    """The costs of a run, earlier starts included. `tokens` are sampled ones."""

    groups: int = 0
    spread: int = 0  # groups whose outcomes differed
    episodes: int = 0  # graded
    solved: int = 0
    lost: int = 0  # by the infrastructure; attempted again
    broken: int = 0  # episodes that a broken task or grader ended
    turns: int = 0
    tokens: int = 0
    unread: int = 0
    cut: int = 0
    seconds: float = 0.0
    policy_s: float = 0.0
    env_s: float = 0.0


class RunState(msgspec.Struct):
    """The file's content. Episodes of the run are named `NAME.GROUP.PLACE`."""

    name: str
    environment: str
    version: int = VERSION
    next_group: int = 1
    open_groups: list[OpenGroup] = []
    tasks: dict[str, TaskMemory] = {}
    totals: RunTotals = msgspec.field(default_factory=RunTotals)

    def group_name(self, number: int) -> str:
        """The server's id of a group."""
        return f"{self.name}.{number}"


def read_state(path: Path) -> RunState | None:
    """The state in a file; None if there is none. Raises ConfigError for a file that holds something else."""
    try:
        held = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        state = msgspec.json.decode(held, type=RunState)
    except msgspec.DecodeError as problem:
        raise ConfigError(
            f"{path} does not hold the state of a training run: {problem}", fix="remove it to begin a new run"
        ) from problem
    if state.version != VERSION:
        raise ConfigError(f"{path} is of version {state.version}, not {VERSION}", fix="remove it to begin a new run")
    return state


def write_state(path: Path, state: RunState) -> None:
    """Writes atomically; it is on disk when this returns. Raises DiskError."""
    fresh = path.with_name(path.name + ".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with fresh.open("wb") as file:
            file.write(msgspec.json.encode(state))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as problem:
        raise unwritable(path, problem) from problem
