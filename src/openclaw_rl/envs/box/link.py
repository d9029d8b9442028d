"""The client side of the keeper: starts it, sends it requests, ends it and its boxes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import openclaw_rl
from openclaw_rl.envs.box.kept import Layout, until_writable
from openclaw_rl.envs.box.pipes import Lines, close_all
from openclaw_rl.errors import BoxError

START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from openclaw_rl.envs.box.keeper import main; main()"
MARK = "OPENCLAW_RL_BOXES"  # in the environment of the keeper and of processes that make boxes, never in a box
END_S = 20.0
MOST_MESSAGE_BYTES = 190_000  # what a socket takes at once


class KeeperLink:
    """A running keeper."""

    def __init__(self, process: subprocess.Popen[bytes], link: socket.socket) -> None:
        self._process = process
        self._link = link
        self._writing = asyncio.Lock()

    @classmethod
    def start(cls, place: Path, layout: Layout, uid: int | None) -> KeeperLink:
        """Starts a keeper; BoxError if this machine does not let it work. Takes about 100 ms."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        given = json.dumps({"place": str(place), "uid": uid, "layout": asdict(layout)})
        package = str(Path(openclaw_rl.__file__).parent.parent)
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", START, package, str(theirs.fileno()), given],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", MARK: place.name},
                start_new_session=True,
            )
        finally:
            theirs.close()
        said = ours.recv(4096).decode("utf-8", "replace")
        if said != "ok":
            ours.close()
            process.wait()
            raise BoxError(f"the process that makes boxes cannot work here: {said.removeprefix('err ') or 'it ended'}")
        ours.setblocking(False)
        return cls(process, ours)

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    async def begin(self, op: str, fields: Mapping[str, object], fds: Sequence[int] = ()) -> Lines:
        """Sends a request; the answer comes line by line. The caller keeps its file descriptors."""
        message = json.dumps({"op": op, **fields}).encode()
        if len(message) > MOST_MESSAGE_BYTES:
            raise BoxError(
                f"a request of {len(message)} bytes is too large", fix="write long content to a file in the box first"
            )
        read, write = os.pipe()
        try:
            async with self._writing:
                await self._send(message, [*fds, write])
        except OSError as problem:
            close_all([read])
            raise BoxError("the process that makes boxes has ended", fix="make the boxes again") from problem
        except BaseException:
            close_all([read])
            raise
        finally:
            os.close(write)
        return Lines(read)

    async def _send(self, message: bytes, fds: list[int]) -> None:
        while True:
            try:
                socket.send_fds(self._link, [message], fds)
                return
            except BlockingIOError:
                await until_writable(self._link)

    async def ask(
        self, op: str, fields: Mapping[str, object], fds: Sequence[int] = ()
    ) -> Mapping[str, int | list[str]]:
        """Sends a request and waits for the answer; BoxError or OSError if it fails."""
        lines = await self.begin(op, fields, fds)
        try:
            return await answer(lines)
        finally:
            lines.close()

    async def aclose(self) -> None:
        """Ends every box, then the keeper itself."""
        self._link.close()
        try:
            await asyncio.wait_for(asyncio.to_thread(self._process.wait), END_S)
        except TimeoutError:
            self._process.send_signal(signal.SIGKILL)
            await asyncio.to_thread(self._process.wait)


async def answer(lines: Lines) -> Mapping[str, int | list[str]]:
    """The content of an answer, after the lines about processes."""
    while (line := await lines.next()) is not None:
        kind, _, rest = line.partition(" ")
        if kind == "ok":
            said: Mapping[str, int | list[str]] = json.loads(rest)
            while (
                await lines.next() is not None
            ):  # until the answering process has ended and is no longer visible in the box
                continue
            return said
        if kind == "err":
            number, _, text = rest.partition(" ")
            raise OSError(int(number), text)
    raise BoxError("the box is gone", fix="make another one")
