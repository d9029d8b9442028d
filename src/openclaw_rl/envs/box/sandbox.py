"""What a box is: the interface that every kind of box implements, and the data types it uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

Watch = Callable[[bytes], None]
HOST = "host"  # the base made from this machine's own /usr, read-only
MOST_COMMAND_BYTES = 100_000  # the kernel takes no argument above 128 KiB


class KilledBy(StrEnum):
    """What ended a command early."""

    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT = "output"  # more was printed than is read
    CPU = "cpu"
    FILE_SIZE = "file_size"
    DISK = "disk"  # the box used more disk than it may
    SIGNAL = "signal"  # killed from inside the box
    BOX = "box"  # the box itself ended


@dataclass(frozen=True, slots=True)
class BoxLimits:
    """What a box may use, and how much of a command's output is read and kept."""

    memory_mb: int = 512
    processes: int = 128
    disk_mb: int = 256
    cpus: float | None = None
    cpu_s: int = 600  # of each process
    open_files: int = 1024
    kept_bytes: int = 64_000  # of each stream, half from its start and half from its end
    read_bytes: int = 256_000_000  # a command that prints more is killed

    def __post_init__(self) -> None:
        for value in (self.memory_mb, self.processes, self.disk_mb, self.cpu_s, self.open_files, self.kept_bytes):
            if value < 1:
                raise ValueError(f"a limit of a box is {value}: at least 1 is needed")


@dataclass(frozen=True, slots=True)
class BoxSpec:
    """What a box is made from. `base` is `host`, a root folder, or for docker and podman an image."""

    base: str = HOST
    workdir: str = "/app"
    env: Mapping[str, str] = field(default_factory=dict)
    network: bool = False
    limits: BoxLimits = field(default_factory=BoxLimits)


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a stream: its start, its end, and the number of bytes cut between them."""

    head: bytes
    tail: bytes = b""
    cut_bytes: int = 0

    @property
    def text(self) -> str:
        """The output as text, with a line that gives the number of bytes cut."""
        middle = f"\n[... {self.cut_bytes} bytes cut ...]\n".encode() if self.cut_bytes else b""
        return (self.head + middle + self.tail).decode("utf-8", "replace")

    @property
    def total_bytes(self) -> int:
        """The number of bytes printed."""
        return len(self.head) + self.cut_bytes + len(self.tail)


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How a command ended. `exit_status` is 128 + n after signal n, as a shell reports it."""

    exit_status: int
    stdout: Output
    stderr: Output
    duration_s: float
    killed_by: KilledBy | None = None
    cpu_s: float | None = None

    @property
    def is_ok(self) -> bool:
        """Whether it ended by itself with status 0."""
        return self.exit_status == 0 and self.killed_by is None


@dataclass(frozen=True, slots=True)
class ShellResult:
    """How a command in a shell ended; output and errors come in the order they were printed."""

    id: int
    exit_status: int
    output: Output
    duration_s: float
    cwd: str
    killed_by: KilledBy | None = None
    is_shell_lost: bool = False  # the shell ended: the next command runs in the same folder, without variables


@dataclass(frozen=True, slots=True)
class BoxStats:
    """The resources a box uses now. None if this kind of box cannot measure it."""

    processes: int | None
    memory_bytes: int | None
    disk_bytes: int | None
    disk_limit_bytes: int | None
    commands: int
    killed: int
    out_of_memory: int


class Shell(Protocol):
    """A bash that keeps its folder, variables and functions from command to command."""

    async def run(self, command: str, *, timeout_s: float) -> ShellResult:
        """The result of a command. After a time-out its processes are gone, and the shell survives if possible."""

    async def aclose(self) -> None:
        """Ends the shell and its processes."""


class Snapshot(Protocol):
    """A state of a box's files."""

    @property
    def name(self) -> str:
        """Its name."""


class Sandbox(Protocol):
    """A box: an agent's commands run in it and reach nothing outside.

    A failure of the box itself raises BoxError; what a command does is in its result.
    """

    @property
    def id(self) -> str:
        """Its name."""

    @property
    def spec(self) -> BoxSpec:
        """The spec it was made from."""

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        timeout_s: float,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        watch: Watch | None = None,
    ) -> ExecResult:
        """The result of a command: text is run by bash, a sequence directly. `env` is added to that of the box.

        `watch` receives the output of both streams as it is printed.
        """

    async def open_shell(self, *, cwd: str | None = None, env: Mapping[str, str] | None = None) -> Shell:
        """A persistent shell in the box."""

    async def read(self, path: str, *, most_bytes: int = 16_000_000) -> bytes:
        """The content of a file in the box. Links are followed inside the box only."""

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Writes a file in the box; missing folders are created."""

    async def upload(self, source: Path, target: str) -> None:
        """Copies a file or a folder's content from this machine into the box."""

    async def download(self, source: str, target: Path) -> None:
        """Copies a file or a folder's content out of the box. Links, devices and pipes are not copied."""

    async def snapshot(self) -> Snapshot:
        """The state of the files at this moment, without processes."""

    async def fork(self) -> Sandbox:
        """Another box with the same files. The two are independent."""

    async def reset(self) -> None:
        """Ends all processes and restores the first state of its files."""

    async def stats(self) -> BoxStats:
        """Its present use of resources."""

    async def aclose(self) -> None:
        """Ends all processes of the box and removes it. May be called twice."""


class Boxes(Protocol):
    """Makes boxes. Closing it closes every box it made."""

    @property
    def limits_in_force(self) -> Mapping[str, str]:
        """Each limit, and what enforces it; `not held` if nothing does."""

    @property
    def has_root(self) -> bool:
        """Whether paths such as /app are the box's own."""

    async def create(self, spec: BoxSpec, *, at: Snapshot | None = None) -> Sandbox:
        """A new box, in the state of a snapshot if one is given."""

    async def build_image(self, folder: Path, *, timeout_s: float) -> str | None:
        """The base made from a folder with a Dockerfile; None if there is no engine that makes images."""

    async def drop(self, snapshot: Snapshot) -> None:
        """Removes a snapshot that no box is based on."""

    async def aclose(self) -> None:
        """Closes every box and removes all stored data."""
