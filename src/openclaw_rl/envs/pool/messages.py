"""The messages between a pool server and its worker processes, over a private pair of sockets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from openclaw_rl.envs.box.probe import BoxKind


@dataclass(frozen=True, slots=True)
class Setup:
    """The first message to a worker: what it shall offer."""

    tasks: tuple[str, ...]  # folders, or `module:function` that gives sources
    kinds: Mapping[str, str]  # further kinds: `module:function` like those of envs.open
    box: BoxKind


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a worker: that it is ready, or why it is not."""

    problem: str = ""
    fix: str = ""
    limits: Mapping[str, str] = field(default_factory=dict)
    place: str = ""  # folder of boxes without isolation


@dataclass(frozen=True, slots=True)
class WorkerCall:
    """A call on a lease."""

    id: int
    call: str
    lease: str
    args: Mapping[str, object]
    timeout_s: float


@dataclass(frozen=True, slots=True)
class WorkerCancel:
    """Cancels a call."""

    id: int


@dataclass(frozen=True, slots=True)
class WorkerReply:
    """The result of a WorkerCall."""

    id: int
    result: bytes = b""  # JSON
    problem: str = ""  # set if it failed
    fix: str = ""
    code: str = ""
    failure: str | None = None
    status: int = 200


@dataclass(frozen=True, slots=True)
class PrintedPiece:
    """A part of a running command's output."""

    id: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Beat:
    """A sign of life from a worker, with what it uses."""

    prepared: tuple[str, ...]
    held: int
