"""One box made of namespaces, seen from outside: commands, shells and files go through its keeper."""

from __future__ import annotations

import asyncio
import contextlib
import os
import posixpath
import resource
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from openclaw_rl.envs.box import archive, base, running
from openclaw_rl.envs.box.cgroups import ControlGroup
from openclaw_rl.envs.box.commands import SHELL_WORDS, words_of
from openclaw_rl.envs.box.kept import SHARED_MEMORY_BYTES
from openclaw_rl.envs.box.link import KeeperLink
from openclaw_rl.envs.box.sandbox import BoxSpec, BoxStats, ExecResult, KilledBy, Watch
from openclaw_rl.envs.box.shell import BashShell
from openclaw_rl.envs.box.under_way import CannotStartError, InsideProcess, as_box_errors, now_ticks
from openclaw_rl.errors import BoxError


@dataclass(frozen=True, slots=True)
class Layers:
    """A snapshot: the folders whose content, the first on top, is the state of the files."""

    names: tuple[str, ...]
    is_host: bool

    @property
    def name(self) -> str:
        """The topmost one."""
        return self.names[0]


class Maker(Protocol):
    """What a box needs from its maker."""

    @property
    def has_pytest(self) -> bool:
        """Whether the base has pytest."""

    async def create(self, spec: BoxSpec, *, at: Layers | None = None) -> IsolatedBox:
        """Another box."""

    async def keep(self, box: IsolatedBox) -> Layers:
        """A snapshot."""

    async def let_go(self, snapshot: Layers) -> None:
        """Removes a snapshot as soon as no box is based on it."""

    async def remove(self, box: IsolatedBox) -> None:
        """Removes a box."""


class IsolatedBox:
    """A box."""

    def __init__(
        self, maker: Maker, keeper: KeeperLink, *, name: str, spec: BoxSpec, layers: Layers, group: ControlGroup | None
    ) -> None:
        self._maker = maker
        self._keeper = keeper
        self._name = name
        self._spec = spec
        self.layers = layers
        self.group = group
        self._rlimits = rlimits_of(spec, group)
        self._running = 0
        self._commands = 0
        self._killed = 0
        self._is_over_disk = False
        self._is_closed = False
        self.only_snapshot: Layers | None = None  # a base that no other box uses: removed with this box

    @property
    def id(self) -> str:
        """Its name."""
        return self._name

    @property
    def spec(self) -> BoxSpec:
        """The spec it was made from."""
        return self._spec

    @property
    def is_alone(self) -> bool:
        """Whether at most one command runs."""
        return self._running <= 1

    async def begin(self, said: Mapping[str, int | list[str]]) -> None:
        """Prepares the box after its first process has started."""
        pid = said["pid"]
        assert isinstance(pid, int)
        _protect(pid)
        await self._ask("mkdir", {"path": self._spec.workdir})
        if self._spec.network and (names := _name_servers()):
            await self.write("/etc/resolv.conf", names)

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
        killed_before = self._out_of_memory()

        async def start(streams: list[int]) -> running.Process:
            return await self.start(words, streams, cwd=cwd, env=env or {})

        started = time.monotonic()
        self._running += 1
        self._commands += 1
        try:
            result = await running.run(
                start,
                stdin=stdin,
                timeout_s=timeout_s,
                limits=self._spec.limits,
                was_memory=lambda: self._out_of_memory() > killed_before,
                watch=watch,
            )
        except CannotStartError as problem:
            return running.not_started(str(problem), duration_s=time.monotonic() - started)
        finally:
            self._running -= 1
        if result.killed_by is KilledBy.SIGNAL and not await self._is_alive():
            result = replace(result, killed_by=KilledBy.BOX)
        if result.killed_by is KilledBy.SIGNAL and self._is_over_disk:
            result = replace(result, killed_by=KilledBy.DISK)
        self._killed += result.killed_by is not None
        return result

    async def watch_disk(self) -> None:
        """Ends all processes of the box if its files use more than they may."""
        usage = await self._ask("usage", {})
        disk, most = usage["disk_bytes"], usage["disk_limit_bytes"]
        assert isinstance(disk, int) and isinstance(most, int)
        self._is_over_disk = disk > most
        if self._is_over_disk:
            await self.kill_since(0, 0, spare=[])

    async def start(
        self, words: Sequence[str], streams: list[int], *, cwd: str | None, env: Mapping[str, str]
    ) -> InsideProcess:
        """Starts a command with these streams as its file descriptors 0, 1, 2 and above."""
        self._check_open()
        fields = {
            "box": self._name,
            "argv": list(words),
            "env": {**self._environment(), **env},
            "cwd": cwd or self._spec.workdir,
            "limits": self._rlimits,
        }
        since = now_ticks()  # taken before the start, so that no process of it is older
        process = InsideProcess(self, await self._keeper.begin("exec", fields, streams), since)
        try:
            await process.began()
        except BaseException:
            process.close()
            raise
        return process

    def _environment(self) -> dict[str, str]:
        python = {"PYTHONPATH": base.PYTHON_FOLDER} if self.layers.is_host and self._maker.has_pytest else {}
        return {**base.ENVIRONMENT, **python, **self._spec.env}

    async def open_shell(self, *, cwd: str | None = None, env: Mapping[str, str] | None = None) -> BashShell:
        """A persistent shell in the box."""

        async def start(streams: list[int], at: str | None) -> InsideProcess:
            process = await self.start(SHELL_WORDS, streams, cwd=at or cwd, env=env or {})
            self._running += 1
            return process

        def ended() -> None:
            self._running -= 1

        shell = BashShell(start, ended, limits=self._spec.limits, out_of_memory=self._out_of_memory)
        await shell.open()
        return shell

    async def read(self, path: str, *, most_bytes: int = 16_000_000) -> bytes:
        """The content of a file in the box."""
        fd = await self._opened({"path": self._full(path), "write": False, "mode": 0})
        with os.fdopen(fd, "rb") as file:
            data = await asyncio.to_thread(file.read, most_bytes + 1)
        if len(data) > most_bytes:
            raise BoxError(f"{path} in the box contains more than {most_bytes} bytes", fix="read less of it")
        return data

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Writes a file in the box."""
        fd = await self._opened({"path": self._full(path), "write": True, "mode": mode})
        with as_box_errors(), os.fdopen(fd, "wb", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]

    async def _opened(self, fields: Mapping[str, object]) -> int:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            await self._ask("open", fields, [theirs.fileno()])
            _, fds, _, _ = socket.recv_fds(ours, 16, 1)
            return fds[0]

    async def upload(self, source: Path, target: str) -> None:
        """Copies a file or a folder's content into the box."""
        single = await asyncio.to_thread(archive.single_file, source)
        if single is not None:
            await self.write(target, single[0], mode=single[1])
            return
        with tempfile.TemporaryFile() as file:
            await asyncio.to_thread(archive.pack, source, file)
            file.seek(0)
            await self._ask("unpack", {"path": self._full(target)}, [file.fileno()])

    async def download(self, source: str, target: Path) -> None:
        """Copies a file or a folder's content out of the box."""
        most = (self._spec.limits.disk_mb << 20) + (1 << 24)
        with tempfile.TemporaryFile() as file:
            if os.geteuid() == 0:
                os.fchmod(file.fileno(), 0o600)
            await self._ask("pack", {"path": self._full(source), "most_bytes": most}, [file.fileno()])
            file.seek(0)
            await asyncio.to_thread(archive.unpack, file, target)

    async def snapshot(self) -> Layers:
        """The state of the files at this moment."""
        self._check_open()
        with as_box_errors():
            return await self._maker.keep(self)

    async def fork(self) -> IsolatedBox:
        """Another box with the same files."""
        snapshot = await self.snapshot()
        other = await self._maker.create(self._spec, at=snapshot)
        other.only_snapshot = snapshot
        return other

    async def reset(self) -> None:
        """Restores the box's first state."""
        self._check_open()
        with as_box_errors():
            await self.begin(await self._keeper.ask("reset", {"box": self._name}))

    async def stats(self) -> BoxStats:
        """Its present use of resources."""
        usage = await self._ask("usage", {})
        count = (await self._ask("count", {}))["processes"]
        disk, most = usage["disk_bytes"], usage["disk_limit_bytes"]
        assert isinstance(count, int) and isinstance(disk, int) and isinstance(most, int)
        memory = self.group.memory_bytes() if self.group is not None else None
        return BoxStats(count, memory, disk, most, self._commands, self._killed, self._out_of_memory())

    async def kill_since(self, since: int, root: int, *, spare: list[int]) -> None:
        """Kills processes that began at `since` or later, in clock ticks since the machine started."""
        with contextlib.suppress(BoxError):  # a box that is gone has no processes
            await self._ask("kill", {"since": since, "root": root, "spare": spare})

    async def aclose(self) -> None:
        """Removes the box."""
        if self._is_closed:
            return
        self._is_closed = True
        await self._maker.remove(self)
        if self.only_snapshot is not None:
            await self._maker.let_go(self.only_snapshot)

    async def _is_alive(self) -> bool:
        with contextlib.suppress(BoxError):
            return not self._is_closed and bool((await self._ask("usage", {}))["alive"])
        return False

    async def _ask(
        self, op: str, fields: Mapping[str, object], fds: Sequence[int] = ()
    ) -> Mapping[str, int | list[str]]:
        self._check_open()
        with as_box_errors():
            return await self._keeper.ask(op, {"box": self._name, **fields}, fds)

    def _check_open(self) -> None:
        if self._is_closed:
            raise BoxError(f"box {self._name} was closed", fix="make another one")

    def _full(self, path: str) -> str:
        return posixpath.join(self._spec.workdir, path)

    def _out_of_memory(self) -> int:
        return self.group.out_of_memory() if self.group is not None and not self._is_closed else 0


def _protect(pid: int) -> None:
    """Running out of memory ends a command, not the box; only root may set this."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text("-1000")


def _name_servers() -> bytes:
    try:
        return Path("/etc/resolv.conf").read_bytes()
    except FileNotFoundError:
        return b""


def rlimits_of(spec: BoxSpec, group: ControlGroup | None) -> list[tuple[int, int, int]]:
    """The resource limits of a command; memory is one of them if no control group limits it."""
    limits = spec.limits
    size = limits.disk_mb << 20
    held = [
        (resource.RLIMIT_CPU, limits.cpu_s, limits.cpu_s + 1),
        (resource.RLIMIT_NPROC, limits.processes + 1, limits.processes + 1),
        (resource.RLIMIT_NOFILE, limits.open_files, limits.open_files),
        (resource.RLIMIT_FSIZE, size, size),
        (resource.RLIMIT_CORE, 0, 0),
    ]
    if group is None or "memory" not in group.folders:
        memory = limits.memory_mb << 20
        space = memory + SHARED_MEMORY_BYTES + (1 << 30)  # programs reserve far more than they use
        held += [(resource.RLIMIT_DATA, memory, memory), (resource.RLIMIT_AS, space, space)]
    return held
