"""Boxes made by docker or podman through their command line, for users who have them."""

from __future__ import annotations

import asyncio
import json
import posixpath
import shutil
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from openclaw_rl.envs.box import archive, running
from openclaw_rl.envs.box.commands import SHELL_WORDS, words_of
from openclaw_rl.envs.box.sandbox import HOST, BoxSpec, BoxStats, ExecResult, Snapshot, Watch
from openclaw_rl.envs.box.shell import BashShell
from openclaw_rl.errors import BoxError

LABEL = "openclaw-rl-box"
MARK = "OPENCLAW_RL_RUN"
ENGINE_S = 120.0  # how long the engine may take for a box
KEPT_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID", "KILL")
# Kills processes that carry the mark $1; with $2, it spares those that the engine itself started.
KILL = (
    'for round in 1 2 3; do for file in $(grep -lszxF -- "$1" /proc/[0-9]*/environ); do at=${file%/environ}; '
    'if [ -n "$2" ] && grep -qx "PPid:.0" $at/status; then continue; fi; kill -9 ${at#/proc/} 2>/dev/null; done; done'
)
# The engine passes no file descriptor above 2: the shell reports on stderr, and prints errors as output.
SHELL = f"exec 3>&2 2>&1; exec {' '.join(SHELL_WORDS)}"
NO_SUCH_CONTAINER = ("No such container", "no such container", "is not running", "no container with")


@dataclass(frozen=True, slots=True)
class Image:
    """A snapshot: an image."""

    name: str


class DockerBoxes:
    """Makes boxes out of containers."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._owner = uuid.uuid4().hex[:12]
        self._boxes: list[DockerBox] = []
        self._images: list[str] = []

    @classmethod
    async def open(cls, engine: str) -> DockerBoxes:
        """Checks that the engine answers."""
        if shutil.which(engine) is None:
            raise BoxError(f"{engine} is not installed", fix="choose another kind of box")
        boxes = cls(engine)
        await boxes.call("version", "--format", "{{json .}}")
        return boxes

    @property
    def limits_in_force(self) -> Mapping[str, str]:
        """Each limit, and what enforces it."""
        held = dict.fromkeys(("files", "network", "memory", "processes", "cores"), self._engine)
        each = dict.fromkeys(("wall time", "output"), "each command")
        return {**held, "cpu time": "rlimit of each process", "disk": "rlimit of each file only", **each}

    @property
    def has_root(self) -> bool:
        """A container has a root of its own."""
        return True

    async def call(
        self, *words: str, stdin: bytes = b"", into: IO[bytes] | None = None, within_s: float = ENGINE_S
    ) -> bytes:
        """The output of a command of the engine."""
        process = await asyncio.create_subprocess_exec(
            self._engine,
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE if into is None else into,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(within_s):
                out, err = await process.communicate(stdin)
        except TimeoutError as problem:
            process.kill()
            await process.wait()
            raise BoxError(f"{self._engine} {words[0]} did not end within {within_s:.0f} s") from problem
        if process.returncode != 0:
            said = err.decode("utf-8", "replace").strip()
            if "No such file or directory" in said:
                raise FileNotFoundError(2, "No such file or directory", words[-1])
            raise BoxError(f"{self._engine} {words[0]} failed: {said[-500:]}")
        return out or b""

    async def create(self, spec: BoxSpec, *, at: Snapshot | None = None) -> DockerBox:
        """A new box."""
        if at is None and spec.base == HOST:
            raise BoxError(f"{self._engine} needs an image as the base", fix="name one in the task's Dockerfile")
        box = DockerBox(self, spec, spec.base if at is None else at.name)
        await box.start()
        self._boxes.append(box)
        return box

    def words(self, spec: BoxSpec, image: str) -> list[str]:
        """The arguments that start a container."""
        limits = spec.limits
        memory, size = f"{limits.memory_mb}m", limits.disk_mb << 20
        words = ["run", "--detach", "--init", "--label", f"{LABEL}={self._owner}"]
        words += ["--network", "bridge" if spec.network else "none", "--memory", memory, "--memory-swap", memory]
        words += ["--pids-limit", str(limits.processes), "--cap-drop", "ALL"]
        words += [word for name in KEPT_CAPABILITIES for word in ("--cap-add", name)]
        words += ["--security-opt", "no-new-privileges", "--ulimit", "core=0", "--ulimit", f"fsize={size}"]
        words += ["--ulimit", f"nofile={limits.open_files}", "--ulimit", f"cpu={limits.cpu_s}"]
        words += ["--cpus", str(limits.cpus)] if limits.cpus is not None else []
        words += [word for key, value in spec.env.items() for word in ("--env", f"{key}={value}")]
        return [*words, "--workdir", spec.workdir, "--entrypoint", "", image, "sleep", "infinity"]

    async def build_image(self, folder: Path, *, timeout_s: float) -> str | None:
        """Makes an image with the engine."""
        name = f"{LABEL}:{uuid.uuid4().hex[:12]}"
        await self.call("build", "--quiet", "--tag", name, str(folder), within_s=timeout_s)
        self._images.append(name)
        return name

    async def keep(self, container: str) -> Image:
        """An image of a container's files."""
        name = f"{LABEL}:{uuid.uuid4().hex[:12]}"
        await self.call("commit", container, name)
        self._images.append(name)
        return Image(name)

    async def drop(self, snapshot: Snapshot) -> None:
        """Removes an image."""
        await self.call("rmi", "--force", snapshot.name)
        self._images.remove(snapshot.name)

    @property
    def engine(self) -> str:
        """The program."""
        return self._engine

    async def aclose(self) -> None:
        """Removes every container and image made here."""
        for box in self._boxes:
            await box.aclose()
        for image in [*self._images]:
            await self.drop(Image(image))


class DockerProcess:
    """A command in a container."""

    def __init__(self, box: DockerBox, process: asyncio.subprocess.Process, mark: str) -> None:
        self._box = box
        self._process = process
        self._mark = mark

    async def ended(self) -> running.ProcessEnd:
        """How it ended."""
        code = await self._process.wait()
        return running.ProcessEnd(code if code >= 0 else 128 - code, None, None)

    async def kill(self) -> None:
        """Kills it and its descendants."""
        await self._box.kill(self._mark, spares_first=False)

    async def kill_inner(self, since: int) -> None:
        """Kills all its descendants, whenever they started: a container's clock gives no finer distinction."""
        await self._box.kill(self._mark, spares_first=True)

    def close(self) -> None:
        """There is nothing to release."""


class DockerBox:
    """A container."""

    def __init__(self, maker: DockerBoxes, spec: BoxSpec, image: str) -> None:
        self._maker = maker
        self._spec = spec
        self._image = image
        self._id = ""
        self._commands = self._killed = 0

    @property
    def id(self) -> str:
        """The container's."""
        return self._id

    @property
    def spec(self) -> BoxSpec:
        """The spec it was made from."""
        return self._spec

    async def start(self) -> None:
        """Starts the container."""
        self._id = (await self._maker.call(*self._maker.words(self._spec, self._image))).decode().strip()

    async def _begin(
        self, words: Sequence[str], streams: list[int], cwd: str | None, env: Mapping[str, str]
    ) -> DockerProcess:
        mark = f"{MARK}={uuid.uuid4().hex}"
        options = [word for key, value in env.items() for word in ("--env", f"{key}={value}")]
        at = ["--workdir", cwd or self._spec.workdir]
        process = await asyncio.create_subprocess_exec(
            *(self._maker.engine, "exec", "--interactive", "--env", mark, *options, *at, self._id, *words),
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[-1],
        )
        return DockerProcess(self, process, mark)

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
        self._check_open()

        async def start(streams: list[int]) -> running.Process:
            return await self._begin(words, streams, cwd, env or {})

        self._commands += 1
        limits = self._spec.limits
        result = await running.run(
            start, stdin=stdin, timeout_s=timeout_s, limits=limits, was_memory=lambda: False, watch=watch
        )
        if result.exit_status != 0 and any(said in result.stderr.text for said in NO_SUCH_CONTAINER):
            raise BoxError(f"container {self._id[:12]} is gone", fix="make another one")
        self._killed += result.killed_by is not None
        return result

    async def open_shell(self, *, cwd: str | None = None, env: Mapping[str, str] | None = None) -> BashShell:
        """A persistent shell in the container."""

        async def start(streams: list[int], at: str | None) -> DockerProcess:
            return await self._begin(["/bin/bash", "-c", SHELL], streams, at or cwd, env or {})

        shell = BashShell(start, lambda: None, limits=self._spec.limits, out_of_memory=lambda: 0)
        await shell.open()
        return shell

    async def read(self, path: str, *, most_bytes: int = 16_000_000) -> bytes:
        """The content of a file."""
        data = await self._call("head", "-c", str(most_bytes + 1), "--", self._full(path))
        if len(data) > most_bytes:
            raise BoxError(f"{path} in the box contains more than {most_bytes} bytes", fix="read less of it")
        return data

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Writes a file."""
        script = 'mkdir -p -- "$(dirname -- "$1")" && cat > "$1" && chmod "$2" -- "$1"'
        await self._call("/bin/bash", "-c", script, "box", self._full(path), f"{mode:o}", stdin=data)

    async def upload(self, source: Path, target: str) -> None:
        """Copies a file or a folder's content into the container."""
        single = await asyncio.to_thread(archive.single_file, source)
        if single is not None:
            await self.write(target, single[0], mode=single[1])
            return
        with tempfile.TemporaryFile() as file:
            await asyncio.to_thread(archive.pack, source, file)
            file.seek(0)
            script = 'mkdir -p -- "$1" && tar -x -C "$1"'
            await self._call("/bin/bash", "-c", script, "box", self._full(target), stdin=file.read())

    async def download(self, source: str, target: Path) -> None:
        """Copies a file or a folder's content out of the container. Links are not copied."""
        script = 'if [ -d "$1" ]; then tar -c -C "$1" .; else tar -c -C "$(dirname "$1")" -- "$(basename "$1")"; fi'
        with tempfile.TemporaryFile() as file:
            await self._call("/bin/bash", "-c", script, "box", self._full(source), into=file)
            file.seek(0)
            await asyncio.to_thread(archive.unpack, file, target)

    async def snapshot(self) -> Image:
        """An image of the files in their present state."""
        self._check_open()
        return await self._maker.keep(self._id)

    async def fork(self) -> DockerBox:
        """Another container with the same files."""
        return await self._maker.create(self._spec, at=await self.snapshot())

    async def reset(self) -> None:
        """Replaces this container with a new one from the same image."""
        await self.aclose()
        await self.start()

    async def stats(self) -> BoxStats:
        """Its present use of resources."""
        self._check_open()
        said = json.loads(await self._maker.call("stats", "--no-stream", "--format", "{{json .}}", self._id))
        return BoxStats(int(said["PIDs"]), None, None, None, self._commands, self._killed, 0)

    async def kill(self, mark: str, *, spares_first: bool) -> None:
        """Kills the processes that carry a mark."""
        if self._id:
            await self._call("/bin/bash", "-c", KILL, "box", mark, "spare" if spares_first else "")

    async def aclose(self) -> None:
        """Removes the container."""
        if self._id:
            container, self._id = self._id, ""
            await self._maker.call("rm", "--force", "--volumes", container)

    async def _call(self, *words: str, stdin: bytes = b"", into: IO[bytes] | None = None) -> bytes:
        self._check_open()
        return await self._maker.call("exec", "--interactive", self._id, *words, stdin=stdin, into=into)

    def _check_open(self) -> None:
        if not self._id:
            raise BoxError("the box was closed", fix="make another one")

    def _full(self, path: str) -> str:
        return posixpath.join(self._spec.workdir, path)
