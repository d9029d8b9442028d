"""The process that makes boxes and starts commands in them: one thread, no privileges, standard library only.

Boxes end with the thread that started them, so one process starts them all and lives as long as its owner. It is in
a user namespace of its own, where it may mount and join namespaces, and has no rights outside. Requests come as JSON
over a socket, each with the write end of a pipe for the answer; when the socket closes, every box is ended.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping

from openclaw_rl.envs.box import inside, syscalls
from openclaw_rl.envs.box.joining import JoinRequest, fork_into
from openclaw_rl.envs.box.kept import KeptBox, Layout, copied, reaped

MOST_MESSAGE_BYTES = 1 << 20
Request = Mapping[str, object]


class Keeper:
    """The boxes, and the requests that concern them."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._boxes: dict[str, KeptBox] = {}
        self._creating: dict[str, asyncio.Task[object]] = {}
        self._tasks: set[asyncio.Task[object]] = set()

    async def serve(self, link: socket.socket) -> None:
        """Answers requests until the other side is gone, then ends every box."""
        loop = asyncio.get_running_loop()
        gone = loop.create_future()

        def receive() -> None:
            data, fds = _received(link)
            if not data:
                loop.remove_reader(link)
                if not gone.done():
                    gone.set_result(None)
                return
            task = loop.create_task(self._answer(json.loads(data), fds))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        loop.add_reader(link, receive)
        await gone
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)  # a task that was making a box removes it again
        boxes = [*self._boxes.values()]
        for box in boxes:
            box.kill()
        for box in boxes:
            await box.removed()

    async def _answer(self, request: Request, fds: list[int]) -> None:
        """Carries out a request; its last file descriptor takes the answer."""
        report = fds[-1]
        try:
            known: dict[str, Callable[[Request, list[int]], Awaitable[object]]] = {
                "create": self._create,
                "close": self._close,
                "reset": self._reset,
                "snapshot": self._snapshot,
                "drop": self._drop,
                "usage": self._usage,
            }
            name = str(request["op"])
            if name in known:
                said = json.dumps(await known[name](request, fds))
                _write(report, f"ok {said}\n")
            else:
                self._inside(name, request, fds)
        except (OSError, KeyError, ValueError) as problem:
            number = problem.errno if isinstance(problem, OSError) and problem.errno else 0
            _write(report, f"err {number} {' '.join(str(problem).split())}\n")
        finally:
            for fd in fds:
                with contextlib.suppress(OSError):
                    os.close(fd)

    def _box(self, request: Request) -> KeptBox:
        box = self._boxes.get(str(request["box"]))
        if box is None or not box.is_alive:
            raise ValueError(f"box {request['box']} is gone")
        return box

    async def _create(self, request: Request, fds: list[int]) -> object:
        box = KeptBox(self._layout, request, [os.dup(fd) for fd in fds[:-1]])
        self._boxes[box.name] = box
        creating = asyncio.current_task()
        assert creating is not None
        self._creating[box.name] = creating
        try:
            await box.start()
        except BaseException:
            self._boxes.pop(box.name, None)
            box.kill()
            await box.removed()
            raise
        finally:
            del self._creating[box.name]
        return {"pid": box.init_pid}

    async def _close(self, request: Request, _fds: list[int]) -> object:
        box = self._boxes.pop(str(request["box"]), None)
        if box is None:
            return {}
        box.kill()
        creating = self._creating.get(box.name)
        if creating is not None:  # the task that makes a box removes it
            await asyncio.wait({creating})
            box.kill()
        if not box.is_removed:
            await box.removed()
        return {}

    async def _reset(self, request: Request, _fds: list[int]) -> object:
        box = self._boxes[str(request["box"])]
        box.kill()
        await box.emptied()
        await box.start()
        return {"pid": box.init_pid}

    async def _snapshot(self, request: Request, _fds: list[int]) -> object:
        box = self._box(request)
        name = str(request["name"])
        await self._signal(box, signal.SIGSTOP)
        try:
            await copied(box.own_files, name)
        except OSError:
            shutil.rmtree(name, ignore_errors=True)
            raise
        finally:
            await self._signal(box, signal.SIGCONT)
        return {"layers": [name, *box.layers] if self._layout.has_overlay else [name]}

    async def _signal(self, box: KeptBox, number: int) -> None:
        """Sends a signal to every process of a box but its first."""
        if box.is_alive:
            joined = JoinRequest("signal", {"signal": number}, ())
            await reaped(fork_into(box.pid_fd, joined, inside.WORK["signal"], network=box.network))

    async def _drop(self, request: Request, _fds: list[int]) -> object:
        shutil.rmtree(str(request["name"]))
        return {}

    async def _usage(self, request: Request, _fds: list[int]) -> object:
        box = self._boxes[str(request["box"])]
        used, most = await box.disk_use()
        return {"alive": box.is_alive, "disk_bytes": used, "disk_limit_bytes": most}

    def _inside(self, name: str, request: Request, fds: list[int]) -> None:
        """Starts a process in a box; it reports by itself."""
        box = self._box(request)
        groups = box.group_fds if name == "exec" else ()
        pid = fork_into(
            box.pid_fd, JoinRequest(name, request, tuple(fds), groups), inside.WORK[name], network=box.network
        )
        task = asyncio.get_running_loop().create_task(reaped(pid))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _received(link: socket.socket) -> tuple[bytes, list[int]]:
    """A message and the file descriptors that came with it."""
    fds = array.array("i")
    data, ancillary, _flags, _address = link.recvmsg(MOST_MESSAGE_BYTES, socket.CMSG_SPACE(16 * fds.itemsize))
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    for fd in fds:
        os.set_inheritable(fd, False)
    return data, list(fds)


def _write(fd: int, text: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(fd, text.encode())


def _become_nobody(uid: int | None) -> None:
    """Gives up root's rights, then enters a user namespace and a mount namespace of its own."""
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        syscalls.set_option(syscalls.PR_SET_DUMPABLE, 1)  # otherwise /proc/self belongs to root
    outside, group = os.getuid(), os.getgid()
    syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS)
    for name, line in (("setgroups", "deny"), ("uid_map", f"0 {outside} 1"), ("gid_map", f"0 {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(line)
    syscalls.mount("none", "/", "", "", flags=syscalls.MS_PRIVATE_ALL)
    syscalls.set_option(syscalls.PR_SET_DUMPABLE, 0)  # no process in a box may inspect it while it joins


def main() -> None:
    """Started by `KeeperLink` with the number of its socket and its settings as JSON."""
    link = socket.socket(fileno=int(sys.argv[1]))
    link.set_inheritable(False)  # no process in a box may inherit it
    given = json.loads(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        os.chdir(given["place"])
        _become_nobody(given["uid"])
    except OSError as problem:
        link.send(f"err {problem.strerror} ({problem.filename})".encode())
        sys.exit(1)
    layout = Layout(**given["layout"])
    link.send(b"ok")
    asyncio.run(Keeper(layout).serve(link))
