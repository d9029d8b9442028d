"""The content of one lease in a worker: an environment, a box alone or a snapshot; and all calls on it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from openclaw_rl.envs.box import archive
from openclaw_rl.envs.box.sandbox import BoxSpec, BoxStats, ExecResult, Sandbox, Shell, ShellResult, Snapshot
from openclaw_rl.envs.pool.box_env import BoxEnv, CanFork, HasBox
from openclaw_rl.envs.pool.wire import CallBody
from openclaw_rl.envs.task import Action, Env, Observation, Score, StepResult, Task
from openclaw_rl.errors import BoxError, PoolError


@dataclass(frozen=True, slots=True)
class ShellName:
    """A shell that was opened."""

    shell: str


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a file, or of a folder as an archive."""

    data: bytes


@dataclass(slots=True)
class Held:
    """One of `env`, `alone` and `snapshot` is set. Raises what environments and boxes raise."""

    env: Env | None = None
    task: Task | None = None
    source: str = ""
    alone: Sandbox | None = None
    snapshot: Snapshot | None = None
    spec: BoxSpec | None = None  # of boxes made from the snapshot
    shells: dict[str, Shell] = field(default_factory=dict)
    opened: int = 0

    @property
    def box(self) -> Sandbox:
        """The box that direct calls go to."""
        if self.alone is not None:
            return self.alone
        if isinstance(self.env, HasBox):
            return self.env.box
        raise PoolError("this lease has no box", fix="lease a kind that works in one", status=422, code="no_box")

    @property
    def episode(self) -> Env:
        """The environment."""
        if self.env is None:
            raise PoolError(
                "this lease is on a box alone", fix="lease a task to reset, step and judge", status=422, code="no_task"
            )
        return self.env

    async def call(self, name: str, body: CallBody, watch: Callable[[bytes], None] | None) -> object:
        """The result of a call."""
        calls: dict[str, Callable[[CallBody], Awaitable[object]]] = {
            "reset": self.reset,
            "step": self.step,
            "evaluate": self.evaluate,
            "read": self.read,
            "write": self.write,
            "shell": self.open_shell,
            "shell_run": self.run,
            "shell_close": self.close_shell,
            "upload": self.upload,
            "download": self.download,
            "reset_box": self.reset_box,
            "stats": self.stats,
        }
        if name == "exec":
            return await self.exec(body, watch)
        return await calls[name](body)

    async def reset(self, body: CallBody) -> Observation:
        """The first observation of the leased task."""
        assert self.task is not None
        await self._close_shells()
        return await self.episode.reset(self.task, seed=body.seed)

    async def step(self, body: CallBody) -> StepResult:
        """The result of the actions."""
        return await self.episode.step([Action(action.tool, action.arguments) for action in body.actions])

    async def evaluate(self, body: CallBody) -> Score:
        """The verdict; `answer` is for kinds that are judged by an answer in words besides the box."""
        if isinstance(self.episode, BoxEnv):
            self.episode.answer = body.answer
        return await self.episode.evaluate()

    async def exec(self, body: CallBody, watch: Callable[[bytes], None] | None) -> ExecResult:
        """The result of a command."""
        return await self.box.exec(
            body.command, timeout_s=body.timeout_s, cwd=body.cwd, env=body.env, stdin=body.stdin, watch=watch
        )

    async def read(self, body: CallBody) -> Content:
        """The content of a file."""
        return Content(await self.box.read(body.path, most_bytes=body.most_bytes))

    async def write(self, body: CallBody) -> None:
        """Writes a file."""
        await self.box.write(body.path, body.data, mode=body.mode)

    async def reset_box(self, _body: CallBody) -> None:
        """Restores the box's first state."""
        await self._close_shells()
        await self.box.reset()

    async def open_shell(self, body: CallBody) -> ShellName:
        """A persistent shell."""
        shell = await self.box.open_shell(cwd=body.cwd, env=body.env)
        self.opened += 1
        name = f"s{self.opened}"
        self.shells[name] = shell
        return ShellName(name)

    async def run(self, body: CallBody) -> ShellResult:
        """The result of a command in a shell."""
        if body.shell not in self.shells:
            raise PoolError(f"there is no shell {body.shell!r}", fix="open one", status=404, code="unknown_shell")
        return await self.shells[body.shell].run(str(body.command), timeout_s=body.timeout_s)

    async def close_shell(self, body: CallBody) -> None:
        """Ends a shell; does nothing if it is gone."""
        shell = self.shells.pop(body.shell, None)
        if shell is not None:
            await shell.aclose()

    async def upload(self, body: CallBody) -> None:
        """Unpacks a tar archive into a folder of the box."""
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as file:
            file.write(body.data)
            file.seek(0)
            archive.unpack(file, Path(folder))
            await self.box.upload(Path(folder), body.path)

    async def download(self, body: CallBody) -> Content:
        """A folder of the box as a tar archive."""
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as file:
            await self.box.download(body.path, Path(folder))
            archive.pack(Path(folder), file)
            if file.tell() > body.most_bytes:
                raise BoxError(
                    f"{body.path} in the box contains more than {body.most_bytes} bytes", fix="read less of it"
                )
            file.seek(0)
            return Content(file.read())

    async def stats(self, _body: CallBody) -> BoxStats:
        """The box's present use of resources."""
        return await self.box.stats()

    async def fork(self) -> Held:
        """The content of another lease, in the same state."""
        if self.alone is not None:
            return Held(alone=await self.alone.fork())
        if not isinstance(self.env, CanFork):
            raise PoolError("this kind of environment cannot be forked", status=422, code="cannot_fork")
        return Held(env=await self.env.fork(), task=self.task, source=self.source)

    async def kept(self) -> Held:
        """The state of the box's files."""
        box = self.box
        return Held(snapshot=await box.snapshot(), spec=box.spec)

    async def _close_shells(self) -> None:
        for name in [*self.shells]:
            with contextlib.suppress(BoxError):  # the box is gone, and the shell with it
                await self.close_shell(CallBody(shell=name))

    async def aclose(self) -> None:
        """Releases everything except a snapshot, which its maker drops."""
        await self._close_shells()
        for part in (self.env, self.alone):
            if part is not None:
                await part.aclose()


def body_of(args: Mapping[str, object]) -> CallBody:
    """The body of a call, as the server passed it on."""
    body = args["body"]
    assert isinstance(body, CallBody)
    return body
