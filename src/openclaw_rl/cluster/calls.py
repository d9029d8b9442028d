"""The calls to the process that talks to Ray, and its answers, over `core.pipe`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.cluster.roles import Group


@dataclass(frozen=True, slots=True)
class Join:
    """The first message: join this cluster and reserve these groups' room. Answered by Joined."""

    address: str
    groups: tuple[Group, ...]
    place_s: float


@dataclass(frozen=True, slots=True)
class Joined:
    """All groups have their room; `nodes` are the cluster's, as text. `here` is this machine's address in it."""

    nodes: tuple[str, ...]
    here: str


@dataclass(frozen=True, slots=True)
class Place:
    """The place of one process of a group. As a message: make it again, on a live node. Answered by Placed."""

    role: str
    number: int


@dataclass(frozen=True, slots=True)
class Placed:
    """The node's address, a free port of it, and the environment variables with which a process there uses its GPUs."""

    address: str
    port: int
    environment: dict[str, str]


@dataclass(frozen=True, slots=True)
class Send:
    """Have a folder's files on the place's node. Answered by a Path."""

    place: Place
    folder: Path
    names: tuple[str, ...]
    is_kept: bool


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove the files of a folder that was sent. Answered by None."""

    place: Place
    folder: Path


@dataclass(frozen=True, slots=True)
class StartProcess:
    """Start a process. Answered by None."""

    place: Place
    command: tuple[str, ...]
    environment: dict[str, str]


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for the process's end. Answered by how it ended."""

    place: Place


@dataclass(frozen=True, slots=True)
class End:
    """End the process. Answered by None."""

    place: Place


Call = Join | Place | Send | Forget | StartProcess | Wait | End


@dataclass(frozen=True, slots=True)
class CallFailure:
    """Why a call cannot be answered; `is_setting`: something the user set is wrong."""

    problem: str
    fix: str = ""
    is_setting: bool = False
