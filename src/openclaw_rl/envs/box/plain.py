"""Boxes without isolation: a folder and resource limits. Commands may do what their user may; used only on request."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.envs.box import archive, running
from openclaw_rl.envs.box.commands import SHELL_WORDS, words_of
from openclaw_rl.envs.box.sandbox import BoxLimits, BoxSpec, BoxStats, ExecResult, Snapshot, Watch
from openclaw_rl.envs.box.shell import CONTROL, BashShell
from openclaw_rl.envs.box.under_way import TICKS, as_box_errors
from openclaw_rl.errors import BoxError

MARK = "OPENCLAW_RL_BOX"
MOST_ROUNDS = 50


@dataclass(frozen=True, slots=True)
class Copy:
    """A snapshot: a copy of a box's folder."""

    folder: Path

    @property
    def name(self) -> str:
        """Its name."""
        return self.folder.name


class PlainBoxes:
    """Makes such boxes."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._boxes: list[PlainBox] = []
        self._made = 0

    @classmethod
    def open(cls) -> PlainBoxes:
        """Starts a maker of boxes."""
        return cls(Path(tempfile.mkdtemp(prefix="openclaw-rl-plain-")))

    @property
    def limits_in_force(self) -> Mapping[str, str]:
        """Each limit, and what enforces it."""
        none = "not held"
        return {
            "files": none,
            "network": none,
            "memory": "rlimit of each process",
            "processes": none if os.geteuid() == 0 else "rlimit of the user",
            "cores": none,
            "cpu time": "rlimit of each process",
            "disk": "rlimit of each file only",
            "wall time": "each command",
            "output": "each command",
        }

    @property
    def has_root(self) -> bool:
        """False: paths such as /app are this machine's own."""
        return False

    async def create(self, spec: BoxSpec, *, at: Snapshot | None = None) -> PlainBox:
        """A new box."""
        if at is not None and not isinstance(at, Copy):
            raise BoxError(f"{at.name} is not a snapshot of this kind of box")
        self._made += 1
        box = PlainBox(self, self.place / f"b{self._made}", spec, at)
        await box.reset()
        self._boxes.append(box)
        return box

    async def build_image(self, folder: Path, *, timeout_s: float) -> str | None:
        """None: there is no engine."""
        return None

    def next_copy(self) -> Copy:
        """Where a snapshot may go."""
        self._made += 1
        return Copy(self.place / f"s{self._made}")

    async def drop(self, snapshot: Snapshot) -> None:
        """Removes a snapshot."""
        await asyncio.to_thread(shutil.rmtree, self.place / snapshot.name)

    async def aclose(self) -> None:
        """Closes every box."""
        for box in self._boxes:
            await box.aclose()
        await asyncio.to_thread(shutil.rmtree, self.place, ignore_errors=True)


class PlainProcess:
    """A command that runs."""

    def __init__(self, box: PlainBox, process: asyncio.subprocess.Process) -> None:
        self._box = box
        self._process = process
        self._since = int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS) - TICKS // 10

    async def ended(self) -> running.ProcessEnd:
        """How it ended."""
        code = await self._process.wait()
        return running.ProcessEnd(code if code >= 0 else 128 - code, -code if code < 0 else None, None)

    async def kill(self) -> None:
        """Kills it and its descendants, and waits until it is gone: the event loop may close right afterwards."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._box.kill_since(self._since, spare=0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(running.KILL_S):
                await self._process.wait()

    async def kill_inner(self, since: int) -> None:
        """Kills descendants that began at `since` or later."""
        await self._box.kill_since(since, spare=self._process.pid)

    def close(self) -> None:
        """There is nothing to release."""


class PlainBox:
    """A folder, and commands that run in it."""

    def __init__(self, maker: PlainBoxes, folder: Path, spec: BoxSpec, start: Copy | None) -> None:
        self._maker = maker
        self._folder = folder
        self._spec = spec
        self._start = start
        self._commands = self._killed = 0
        self._mark = uuid.uuid4().hex
        self._is_closed = False

    @property
    def id(self) -> str:
        """Its name."""
        return self._folder.name

    @property
    def spec(self) -> BoxSpec:
        """The spec it was made from."""
        return self._spec

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
        """The result of a command."""
        words = words_of(command)

        async def start(streams: list[int]) -> running.Process:
            return await self._begin(words, streams, cwd, env or {})

        self._commands += 1
        began = time.monotonic()
        limits = self._spec.limits
        try:
            result = await running.run(
                start, stdin=stdin, timeout_s=timeout_s, limits=limits, was_memory=lambda: False, watch=watch
            )
        except FileNotFoundError as problem:
            return running.not_started(str(problem), duration_s=time.monotonic() - began)
        self._killed += result.killed_by is not None
        return result

    async def _begin(
        self, words: Sequence[str], streams: list[int], cwd: str | None, env: Mapping[str, str]
    ) -> PlainProcess:
        self._check_open()
        more = streams[3:]
        duplicated = "".join(f" {CONTROL + place}>&{fd}" for place, fd in enumerate(more))
        limited = f'{_limits(self._spec.limits)} exec "$@"{duplicated}'
        process = await asyncio.create_subprocess_exec(
            *("/bin/bash", "--noprofile", "--norc", "-c", limited, "box", *words),
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            pass_fds=more,
            cwd=self._path(cwd or self._spec.workdir),
            env={**self._environment(), **env},
            start_new_session=True,
        )
        return PlainProcess(self, process)

    def _environment(self) -> dict[str, str]:
        python = str(Path(sys.executable).parent)
        own = {"PATH": f"{python}:/usr/local/bin:/usr/bin:/bin", "HOME": str(self._folder), "LANG": "C.UTF-8"}
        return {**own, "PYTHONDONTWRITEBYTECODE": "1", **self._spec.env, MARK: self._mark}

    async def open_shell(self, *, cwd: str | None = None, env: Mapping[str, str] | None = None) -> BashShell:
        """A persistent shell."""

        async def start(streams: list[int], at: str | None) -> PlainProcess:
            return await self._begin(SHELL_WORDS, streams, at or cwd, env or {})

        shell = BashShell(start, lambda: None, limits=self._spec.limits, out_of_memory=lambda: 0)
        await shell.open()
        return shell

    async def read(self, path: str, *, most_bytes: int = 16_000_000) -> bytes:
        """The content of a file in the folder."""
        data = await asyncio.to_thread(self._path(path).read_bytes)
        if len(data) > most_bytes:
            raise BoxError(f"{path} in the box contains more than {most_bytes} bytes", fix="read less of it")
        return data

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Writes a file in the folder."""
        with as_box_errors():
            target = self._path(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            await asyncio.to_thread(target.write_bytes, data)
            target.chmod(mode)

    async def upload(self, source: Path, target: str) -> None:
        """Copies a file or a folder's content into the folder."""
        single = await asyncio.to_thread(archive.single_file, source)
        if single is not None:
            await self.write(target, single[0], mode=single[1])
            return
        await asyncio.to_thread(shutil.copytree, source, self._path(target), symlinks=True, dirs_exist_ok=True)

    async def download(self, source: str, target: Path) -> None:
        """Copies a file or a folder's content out. Links are not copied."""

        def links(folder: str, names: list[str]) -> list[str]:
            return [name for name in names if not _is_plain(Path(folder, name))]

        def copy() -> None:
            at = self._path(source)
            if at.is_dir():
                shutil.copytree(at, target, ignore=links, dirs_exist_ok=True)
            else:
                target.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(at, target / at.name)

        await asyncio.to_thread(copy)

    async def snapshot(self) -> Copy:
        """A copy of the folder."""
        copy = self._maker.next_copy()
        await asyncio.to_thread(shutil.copytree, self._folder, copy.folder, symlinks=True)
        return copy

    async def fork(self) -> PlainBox:
        """Another box with the same files."""
        return await self._maker.create(self._spec, at=await self.snapshot())

    async def reset(self) -> None:
        """Restores the folder's first state."""
        await self.kill_since(0, spare=0)
        if self._folder.exists():
            await asyncio.to_thread(shutil.rmtree, self._folder)
        if self._start is None:
            self._folder.mkdir()
        else:
            await asyncio.to_thread(shutil.copytree, self._start.folder, self._folder, symlinks=True)
        self._path(self._spec.workdir).mkdir(parents=True, exist_ok=True)

    async def stats(self) -> BoxStats:
        """Its present use of resources."""
        size = sum(path.lstat().st_size for path in self._folder.rglob("*"))
        return BoxStats(len(self._own(0)), None, size, None, self._commands, self._killed, 0)

    async def kill_since(self, since: int, *, spare: int) -> None:
        """Kills processes of this box that began at `since` or later."""
        for _ in range(MOST_ROUNDS):
            left = [pid for pid in self._own(since) if pid != spare]
            if not left:
                return
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0)

    def _own(self, since: int) -> list[int]:
        """The processes that carry the mark of this box."""
        mark = f"{MARK}={self._mark}".encode()
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError, IndexError):
                    if mark in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                        words = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()
                        if words[0] not in (b"Z", b"X") and int(words[19]) >= since:
                            found.append(int(name))
        return found

    async def aclose(self) -> None:
        """Ends its processes and removes the folder."""
        if not self._is_closed:
            self._is_closed = True
            await self.kill_since(0, spare=0)
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    def _check_open(self) -> None:
        if self._is_closed:
            raise BoxError(f"box {self.id} was closed", fix="make another one")

    def _path(self, path: str) -> Path:
        """A path of the box on this machine; an absolute one is relative to its folder, unless it is in it already."""
        given = Path(path)
        if not given.is_relative_to(self._folder):
            start = self._folder if given.is_absolute() else self._folder / self._spec.workdir.lstrip("/")
            given = start / path.lstrip("/")
        real = Path(os.path.realpath(given))
        if not real.is_relative_to(os.path.realpath(self._folder)):
            raise BoxError(f"{path} leads out of the box")
        return real


def _limits(limits: BoxLimits) -> str:
    """The shell commands that set the limits of a process; for root, the number of processes is not limited."""
    processes = "" if os.geteuid() == 0 else f"ulimit -u {limits.processes + _processes_of_user()};"
    blocks = (limits.disk_mb << 20) // 1024
    return (
        f"ulimit -c 0; ulimit -t {limits.cpu_s}; ulimit -n {limits.open_files}; ulimit -f {blocks}; "
        f"ulimit -d {limits.memory_mb << 10}; {processes}"
    )


def _processes_of_user() -> int:
    """How many threads the user has: its limit counts them all."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == os.getuid():
                    count += len(os.listdir(f"/proc/{name}/task"))
    return count


def _is_plain(path: Path) -> bool:
    return not path.is_symlink() and (path.is_file() or path.is_dir())
