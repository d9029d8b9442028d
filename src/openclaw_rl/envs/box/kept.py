"""A box on its keeper's side: the mounts, the first process, and its removal."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass

from openclaw_rl.envs.box import syscalls

READY = b"ready\n"
FIRST_PROCESS = (
    "/bin/bash",
    "-c",
    "echo ready; exec >/dev/null 2>&1; while read -r; do :; done",
)  # it reaps orphans and ends with its keeper
SHARED_MEMORY_BYTES = 64 << 20
MOST_LAYERS = 64
START_S = 20.0
STOP_LOOKS, STOP_PAUSE_S = 100, 0.001


@dataclass(frozen=True, slots=True)
class Layout:
    """How this keeper builds boxes; folders are relative to its place, or absolute."""

    bwrap: str
    has_overlay: bool
    is_in_memory: bool  # a box's files are in a separate file system in memory, of bounded size
    bound: tuple[tuple[str, str], ...]  # read-only folders of this machine, and where they are in a box
    can_disable_namespaces: bool = True


def settle(waiting: asyncio.Future[None]) -> None:
    """Ends a wait, once."""
    if not waiting.done():
        waiting.set_result(None)


async def until_writable(fd: int | socket.socket) -> None:
    """Returns once something can be written there."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(fd, settle, ready)
    try:
        await ready
    finally:
        loop.remove_writer(fd)


async def reaped(pid: int) -> int:
    """The wait status of a child, without blocking others."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    fd = os.pidfd_open(pid)
    loop.add_reader(fd, settle, ended)
    try:
        await ended
    finally:
        loop.remove_reader(fd)
        os.close(fd)
    return _status_of(pid)


async def said_by(words: list[str]) -> tuple[int, str]:
    """The wait status of a program and the start of what it printed."""
    read, write = os.pipe()
    pid = _spawned(words, write)
    os.close(write)
    try:
        return await reaped(pid), os.read(read, 4000).decode("utf-8", "replace")
    finally:
        os.close(read)


async def copied(source: str, target: str) -> None:
    """Copies a folder with everything a layer may contain: owners, times, links, whiteouts."""
    status, said = await said_by(["cp", "-a", "--reflink=auto", "--", source, target])
    if status != 0:
        raise OSError(28 if "No space left" in said else 5, f"the files of the box cannot be copied: {said.strip()}")


class KeptBox:
    """One box."""

    def __init__(self, layout: Layout, request: Mapping[str, object], group_fds: list[int]) -> None:
        layers, options = request["layers"], request["options"]
        assert isinstance(layers, list)
        assert isinstance(options, dict)
        if len(layers) > MOST_LAYERS:
            raise ValueError(f"the box would be based on {len(layers)} layers: at most {MOST_LAYERS} can be used")
        self.name = str(request["box"])
        self.layers = [str(layer) for layer in layers]
        self.network = bool(options["network"])
        self.group_fds = tuple(group_fds)
        self.pid_fd = -1
        self.init_pid = 0
        self.is_removed = False
        self._layout = layout
        self._disk_mb = int(options["disk_mb"])
        self._has_host_usr = bool(options["host_usr"])
        self._outer = 0
        self._stdin = -1

    @property
    def own_files(self) -> str:
        """The folder with the files that this box wrote."""
        return f"{self.name}/u" if self._layout.has_overlay else f"{self.name}/m"

    @property
    def is_alive(self) -> bool:
        """Whether its first process is running."""
        if self.pid_fd < 0:
            return False
        try:
            signal.pidfd_send_signal(self.pid_fd, 0)
        except ProcessLookupError:
            return False
        return True

    async def disk_use(self) -> tuple[int, int]:
        """The size of its files in bytes, and the limit."""
        if self._layout.is_in_memory:
            held = os.statvfs(self.name)
            return (held.f_blocks - held.f_bfree) * held.f_frsize, held.f_blocks * held.f_frsize
        _, said = await said_by(["du", "-sk", "--", self.own_files])
        kilobytes = said.split("\n")[-2 if said.endswith("\n") else -1].split("\t")[0]
        return int(kilobytes) << 10 if kilobytes.isdigit() else 0, self._disk_mb << 20

    async def start(self) -> None:
        """Lays out the files and starts the first process."""
        os.mkdir(self.name, 0o700)
        if self._layout.is_in_memory:
            syscalls.mount(
                "tmpfs", self.name, "tmpfs", f"size={self._disk_mb}m,mode=700,nr_inodes={self._disk_mb * 512}"
            )
        merged = f"{self.name}/m"
        if self._layout.has_overlay:
            for part in "uwm":
                os.mkdir(f"{self.name}/{part}")
            lower = ":".join(self.layers)
            upper = f"upperdir={self.name}/u,workdir={self.name}/w"
            syscalls.mount("overlay", merged, "overlay", f"lowerdir={lower},{upper},userxattr")
        else:
            await copied(self.layers[0], merged)
        await self._begin(merged)

    async def _begin(self, merged: str) -> None:
        stdin, self._stdin = os.pipe()
        info, info_write = os.pipe()
        said, said_write = os.pipe()
        keeper = os.getpid()
        self._outer = os.fork()
        if self._outer == 0:
            try:
                syscalls.set_option(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)  # bubblewrap sets this only later
                if os.getppid() != keeper:
                    os._exit(127)
                for fd in self.group_fds:
                    os.write(fd, b"0")
                os.dup2(stdin, 0)
                os.dup2(said_write, 1)
                os.dup2(said_write, 2)
                os.set_inheritable(info_write, True)
                os.execv(self._layout.bwrap, self._words(merged, info_write))
            finally:
                os._exit(127)
        for fd in (stdin, info_write, said_write):
            os.close(fd)
        try:
            # bubblewrap gives its pid before its root is set up: joining then would expose this machine's files.
            received = await asyncio.wait_for(_until(said, READY), START_S)
            if not received.endswith(READY):
                raise OSError(5, f"bubblewrap made no box: {received.decode('utf-8', 'replace').strip()}")
            self.init_pid = int(json.loads(await _until(info, b"}"))["child-pid"])
            self.pid_fd = os.pidfd_open(self.init_pid)
        except (ProcessLookupError, TimeoutError) as problem:
            raise OSError(5, "the box ended while it was started") from problem
        finally:
            os.close(info)
            os.close(said)

    def _words(self, merged: str, info: int) -> list[str]:
        words = ["bwrap", "--unshare-all", "--unshare-user", "--uid", "0", "--gid", "0", "--hostname", "box"]
        words += ["--as-pid-1", "--die-with-parent", "--new-session", "--clearenv", "--setenv", "PATH", "/usr/bin:/bin"]
        if self._layout.can_disable_namespaces:
            words.append("--disable-userns")
        if self.network:
            words.append("--share-net")
        words += ["--bind", merged, "/"]
        if self._has_host_usr:
            words += [word for source, target in self._layout.bound for word in ("--ro-bind", source, target)]
        words += ["--proc", "/proc", "--dev", "/dev", "--size", str(SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm"]
        words += ["--remount-ro", "/dev", "--chdir", "/", "--info-fd", str(info), *FIRST_PROCESS]
        return words

    def kill(self) -> None:
        """Kills the first process of the box, and with it every other one in it."""
        with contextlib.suppress(ProcessLookupError):
            if self.pid_fd >= 0:
                signal.pidfd_send_signal(self.pid_fd, signal.SIGKILL)
            elif self._outer:
                _kill_maker(self._outer)

    async def emptied(self) -> None:
        """Waits until the box's processes have ended, then removes its files."""
        if self._outer:
            await reaped(self._outer)
            self._outer = 0
        for fd in (self.pid_fd, self._stdin):
            if fd >= 0:
                os.close(fd)
        self.pid_fd = self._stdin = -1
        if self._layout.has_overlay:
            with contextlib.suppress(OSError):  # it was never mounted
                syscalls.unmount(f"{self.name}/m")
        if self._layout.is_in_memory:
            with contextlib.suppress(OSError):
                syscalls.unmount(self.name)
        shutil.rmtree(self.name, onerror=_made_writable)

    async def removed(self) -> None:
        """As `emptied`, and releases the rest."""
        self.is_removed = True
        await self.emptied()
        for fd in self.group_fds:
            os.close(fd)


def _kill_maker(pid: int) -> None:
    """Kills a bubblewrap that makes a box, and its child, which would wait for ever without it."""
    os.kill(pid, signal.SIGSTOP)  # it must not fork between the listing and the kill
    try:
        for _ in range(STOP_LOOKS):
            with open(f"/proc/{pid}/stat", "rb") as file:
                if file.read().rpartition(b")")[2].split()[0] in (b"T", b"Z", b"X"):
                    break
            time.sleep(STOP_PAUSE_S)
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            children = [int(word) for word in file.read().split()]
    except OSError:
        children = []  # it has ended
    for one in (*children, pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def _made_writable(_function: object, path: str, _problem: object) -> None:
    """Makes a folder readable that was written without the right to list it; it is ours, so this works."""
    with contextlib.suppress(OSError):
        os.chmod(os.path.dirname(path), 0o700)
        if os.path.isdir(path) and not os.path.islink(path):
            os.chmod(path, 0o700)
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)


def _spawned(words: list[str], output: int) -> int:
    actions = [(os.POSIX_SPAWN_DUP2, output, 1), (os.POSIX_SPAWN_DUP2, output, 2)]
    return os.posix_spawnp(words[0], words, os.environ, file_actions=actions)


def _status_of(pid: int) -> int:
    return os.waitpid(pid, 0)[1]  # it has ended


async def _until(fd: int, end: bytes) -> bytes:
    """The bytes from a pipe, up to this ending or until its other side is closed."""
    loop = asyncio.get_running_loop()
    read = bytearray()
    while True:
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(fd, settle, ready)
        try:
            await ready
        finally:
            loop.remove_reader(fd)
        piece = os.read(fd, 4096)
        if not piece:
            return bytes(read)
        read += piece
        if read.rstrip(b"\n").endswith(end.rstrip(b"\n")):
            return bytes(read)
