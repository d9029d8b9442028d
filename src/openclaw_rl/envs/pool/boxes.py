"""Boxes in a pool: the last resort for machines that cannot make boxes."""

from __future__ import annotations

import asyncio
import io
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from openclaw_rl.envs.box import archive
from openclaw_rl.envs.box.sandbox import BoxSpec, BoxStats, ExecResult, ShellResult, Snapshot, Watch
from openclaw_rl.envs.pool.client import PoolClient
from openclaw_rl.envs.pool.remote import HeldLease
from openclaw_rl.envs.pool.wire import BOX, CallBody, Granted, PoolLeaseBody
from openclaw_rl.errors import BoxError, PoolError

CALL_S = 120.0
MARGIN_S = 60.0


class _Said(msgspec.Struct):
    shell: str = ""
    data: bytes = b""


class PoolSnapshot:
    """A state of a box's files, kept in the pool while this client runs."""

    def __init__(self, lease: HeldLease) -> None:
        self.lease = lease

    @property
    def name(self) -> str:
        """Its name."""
        return self.lease.granted.lease


class PoolShell:
    """A shell in such a box."""

    def __init__(self, box: PoolBox, name: str) -> None:
        self._box = box
        self._name = name

    async def run(self, command: str, *, timeout_s: float) -> ShellResult:
        """The result of a command."""
        body = CallBody(shell=self._name, command=command, timeout_s=timeout_s)
        return msgspec.json.decode(await self._box.call("shell_run", body, timeout_s + MARGIN_S), type=ShellResult)

    async def aclose(self) -> None:
        """Ends the shell; does nothing if the box is gone."""
        try:
            await self._box.call("shell_close", CallBody(shell=self._name), CALL_S)
        except PoolError:
            return


class PoolBox:
    """Implements Sandbox. Failures of the pool raise BoxError, as failures of a box do."""

    def __init__(self, client: PoolClient, lease: HeldLease, spec: BoxSpec | None = None) -> None:
        self._client = client
        self._lease = lease
        self._spec = spec or BoxSpec()

    @property
    def id(self) -> str:
        """Its name."""
        return self._lease.granted.lease

    @property
    def spec(self) -> BoxSpec:
        """The spec it was made from; unknown for the box of an environment."""
        return self._spec

    async def call(self, name: str, body: CallBody, within_s: float, watch: Watch | None = None) -> bytes:
        """The answer to an operation that is done once."""
        path, token = f"{self._lease.path}/{name}", self._lease.granted.token
        return await self._lease.server.operate(path, body, token=token, within_s=within_s, watch=watch)

    async def _look(self, name: str, body: CallBody) -> bytes:
        path, token = f"{self._lease.path}/{name}", self._lease.granted.token
        body.deadline_s = CALL_S
        try:
            return await self._lease.server.ask("POST", path, body, token=token, within_s=CALL_S)
        except PoolError as problem:
            if problem.code == "no_such_file":
                raise FileNotFoundError(problem.problem) from problem
            raise

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
        words = command if isinstance(command, str) else list(command)
        body = CallBody(command=words, timeout_s=timeout_s, cwd=cwd, env=dict(env or {}), stdin=stdin)
        said = await self.call("exec", body, timeout_s + MARGIN_S, watch)
        return msgspec.json.decode(said, type=ExecResult)

    async def open_shell(self, *, cwd: str | None = None, env: Mapping[str, str] | None = None) -> PoolShell:
        """A persistent shell."""
        said = await self.call("shell", CallBody(cwd=cwd, env=dict(env or {})), CALL_S)
        return PoolShell(self, msgspec.json.decode(said, type=_Said).shell)

    async def read(self, path: str, *, most_bytes: int = 16_000_000) -> bytes:
        """The content of a file."""
        said = await self._look("read", CallBody(path=path, most_bytes=most_bytes))
        return msgspec.json.decode(said, type=_Said).data

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Writes a file."""
        await self.call("write", CallBody(path=path, data=data, mode=mode), CALL_S)

    async def upload(self, source: Path, target: str) -> None:
        """Copies a file or a folder's content into the box."""
        single = await asyncio.to_thread(archive.single_file, source)
        if single is not None:
            await self.write(target, single[0], mode=single[1])
            return
        with tempfile.TemporaryFile() as file:
            await asyncio.to_thread(archive.pack, source, file)
            file.seek(0)
            await self.call("upload", CallBody(path=target, data=file.read()), CALL_S)

    async def download(self, source: str, target: Path) -> None:
        """Copies a file or a folder's content out of the box."""
        most = (self._spec.limits.disk_mb << 20) + (1 << 24)
        said = await self._look("download", CallBody(path=source, most_bytes=most))
        await asyncio.to_thread(archive.unpack, io.BytesIO(msgspec.json.decode(said, type=_Said).data), target)

    async def snapshot(self) -> PoolSnapshot:
        """The state of the files at this moment."""
        return PoolSnapshot(await self._derived("snapshot"))

    async def fork(self) -> PoolBox:
        """Another box with the same files."""
        return PoolBox(self._client, await self._derived("fork"), self._spec)

    async def _derived(self, name: str) -> HeldLease:
        granted = msgspec.json.decode(await self.call(name, CallBody(), CALL_S), type=Granted)
        return self._client.adopt(HeldLease(self._lease.server, granted))

    async def reset(self) -> None:
        """Restores the box's first state."""
        await self.call("reset_box", CallBody(), CALL_S)

    async def stats(self) -> BoxStats:
        """Its present use of resources."""
        return msgspec.json.decode(await self._look("stats", CallBody()), type=BoxStats)

    async def aclose(self) -> None:
        """Closes the lease on the box."""
        await self._client.give_back(self._lease)


class PoolBoxes:
    """Implements Boxes: makes boxes in the pools of a client, which it does not close."""

    def __init__(self, client: PoolClient, limits: Mapping[str, str]) -> None:
        self._client = client
        self._limits = limits
        self._made: list[PoolBox] = []

    @classmethod
    async def open(cls, client: PoolClient) -> PoolBoxes:
        """Asks the first pool that answers for the limits of its boxes. PoolError if none does."""
        for server in client.servers:
            status = await server.status(fresh_s=0.0)
            if status is not None:
                return cls(client, status.limits)
        raise PoolError("no pool answers", fix="check that one runs", code="pool_away", failure="infrastructure")

    @property
    def limits_in_force(self) -> Mapping[str, str]:
        """Each limit, and what enforces it in the first pool."""
        return self._limits

    @property
    def has_root(self) -> bool:
        """Whether paths such as /app are the box's own."""
        return self._limits.get("files") != "not held"

    async def create(self, spec: BoxSpec, *, at: Snapshot | None = None) -> PoolBox:
        """A new box; with a snapshot, it is made in the snapshot's pool."""
        if at is not None and not isinstance(at, PoolSnapshot):
            raise BoxError(f"{at.name} is not a snapshot of this kind of box")
        if at is None:
            lease = await self._client.lease(PoolLeaseBody(BOX, box=spec))
        else:
            server, body = at.lease.server, PoolLeaseBody(BOX, box=spec, snapshot=at.name)
            lease = self._client.adopt(await server.lease(body, within_s=CALL_S))
        box = PoolBox(self._client, lease, spec)
        self._made.append(box)
        return box

    async def build_image(self, folder: Path, *, timeout_s: float) -> str | None:
        """None: a pool builds the images of its own tasks only."""
        return None

    async def drop(self, snapshot: Snapshot) -> None:
        """Releases a snapshot; the pool removes it when no box is based on it."""
        assert isinstance(snapshot, PoolSnapshot)
        await self._client.give_back(snapshot.lease)

    async def aclose(self) -> None:
        """Closes every box."""
        for box in self._made:
            await box.aclose()
