"""The Ray actor on a node of the cluster: it receives files and runs one process.

Ray sends this class by value, so a node needs only the standard library and Ray; it imports no other module of ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

CACHE = Path("~/.cache/openclaw-rl")
PIECE = 1 << 23
PREFIX, LOCK = "openclaw-rl-node-", "lock"


def digest_of(folder: Path, names: Sequence[str]) -> str:
    """SHA-256 over the names and contents of a folder's files. Raises OSError."""
    total = hashlib.sha256()
    for name in names:
        total.update(f"{name}\n{(folder / name).stat().st_size}\n".encode())
        with (folder / name).open("rb") as stream:
            while piece := stream.read(PIECE):
                total.update(piece)
    return total.hexdigest()


def own_folder() -> tuple[Path, int]:
    """A new temporary folder, and a file descriptor by which it is locked for as long as any process has it open."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if (folder / LOCK).exists():
            return folder, handle
        os.close(handle)  # removed by another actor just before it was locked


def remove_left() -> None:
    """Removes the temporary folders of actors that were killed together with their keepers, and their transfers.

    Those that a process has locked stay, and those of other users. So do transfers of other nodes: several nodes may
    share the cache, as they share a home.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            handle = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for coming in CACHE.expanduser().glob(f"{folder.name}-*"):
                    shutil.rmtree(coming, ignore_errors=True)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(handle)


class NodeActor:
    """One place on a node. `keeper` is the text of keeper.py."""

    def __init__(self, keeper: str) -> None:
        self._keeper = keeper
        remove_left()
        self._folder, self._lock = own_folder()
        self._process: asyncio.subprocess.Process | None = None
        self._how = ""

    async def place(self) -> tuple[str, int, dict[str, str]]:
        """The node's address, a free port of it, and which GPUs are this place's, in CUDA's notation."""
        import ray

        address = str(ray.util.get_node_ip_address())
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as one:
            one.bind((address, 0))
            port = int(one.getsockname()[1])
        devices = os.environ.get("CUDA_VISIBLE_DEVICES")
        return address, port, {} if devices is None else {"CUDA_VISIBLE_DEVICES": devices}

    async def found(self, folder: str, names: Sequence[str], digest: str, is_kept: bool) -> str:
        """The path of exactly these files on this node, the same or of an earlier transfer; empty if missing."""
        sent = self._sent(folder, digest, is_kept)
        if sent.is_dir() or await asyncio.to_thread(_holds, Path(folder), names, digest):
            return str(sent if sent.is_dir() else folder)
        return ""

    async def write(self, digest: str, name: str, data: bytes, is_kept: bool) -> None:
        """The next piece of a file. Raises OSError, such as for a full disk."""
        path = self._coming(digest, is_kept) / name
        await asyncio.to_thread(_append, path, data)

    async def finish(self, folder: str, names: Sequence[str], digest: str, is_kept: bool) -> str:
        """The path of the complete files. Raises ValueError if they are not what was sent."""
        coming, place = self._coming(digest, is_kept), self._sent(folder, digest, is_kept)
        if await asyncio.to_thread(digest_of, coming, names) != digest:
            shutil.rmtree(coming, ignore_errors=True)
            raise ValueError("the files that came are not those that were sent")
        place.parent.mkdir(exist_ok=True)
        try:
            coming.rename(place)
        except OSError:  # another transfer has put them there already
            shutil.rmtree(coming, ignore_errors=True)
            if not place.is_dir():
                raise
        return str(place)

    async def forget(self, digest: str) -> None:
        """Removes files that were sent and need not be kept."""
        await asyncio.to_thread(shutil.rmtree, self._folder / digest, True)

    async def start(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Starts a process; its id. An empty first word is this node's Python. Raises RuntimeError."""
        held = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", self._keeper),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=held,
            pass_fds=(self._lock,),  # the folder is in use until both have ended
        )
        assert process.stdin is not None and process.stdout is not None
        asked = {
            "command": [command[0] or sys.executable, *command[1:]],
            "environment": dict(environment),
            "folder": str(self._folder),
        }
        process.stdin.write(json.dumps(asked).encode() + b"\n")
        await process.stdin.drain()
        said = json.loads(await process.stdout.readline() or b"{}")
        if "pid" not in said:
            raise RuntimeError(said.get("problem", "its keeper ended at once"))
        return int(said["pid"])

    async def wait(self) -> str:
        """How the process ended, after its end."""
        if not self._how:
            assert self._process is not None and self._process.stdout is not None
            said = json.loads(await self._process.stdout.readline() or b"{}")
            self._how = said.get("ended", "its keeper is gone")
        return self._how

    async def end(self) -> None:
        """Ends the process with its descendants, and removes files that were sent and need not be kept."""
        if self._process is None:
            shutil.rmtree(self._folder, ignore_errors=True)
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        while self._folder.exists():  # the keeper's last act  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    def _home(self, is_kept: bool) -> Path:
        return CACHE.expanduser() if is_kept else self._folder

    def _sent(self, folder: str, digest: str, is_kept: bool) -> Path:
        """The path of a folder that was sent, by its original name."""
        return self._home(is_kept) / digest / Path(folder).name

    def _coming(self, digest: str, is_kept: bool) -> Path:
        return self._home(is_kept) / f"{self._folder.name}-{digest}"


def _holds(place: Path, names: Sequence[str], digest: str) -> bool:
    try:
        return digest_of(place, names) == digest
    except OSError:
        return False


def _append(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(data)
