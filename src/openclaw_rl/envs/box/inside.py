"""What a process does inside a box: run a command, open, pack and unpack files, end processes."""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import os
import resource
import signal
import socket
import stat
import tarfile
from collections.abc import Mapping
from typing import IO

from openclaw_rl.envs.box.joining import JoinRequest, Work

MOST_ROUNDS = 200
ROUNDS_WHILE_RUNNING = 3
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT)


def _text(request: Mapping[str, object], name: str) -> str:
    return str(request[name])


def _number(request: Mapping[str, object], name: str) -> int:
    value = request[name]
    assert isinstance(value, int)
    return value


def _run(joined: JoinRequest) -> None:
    """Replaces itself with the command; its standard streams are the first three file descriptors."""
    request = joined.request
    argv, env, limits = request["argv"], request["env"], request["limits"]
    assert isinstance(argv, list)
    assert isinstance(env, dict)
    assert isinstance(limits, list)
    os.setsid()
    os.write(joined.fds[-1], f"inner {os.getpid()}\n".encode())
    for number, low, high in limits:
        resource.setrlimit(number, (low, high))
    for number in IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    os.chdir(_text(request, "cwd"))
    apart = [
        fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 16) for fd in joined.fds
    ]  # numbers above those that the command is to get
    for place, fd in enumerate(apart[:-1]):
        os.dup2(fd, place)
    os.closerange(len(apart) - 1, 1 << 20)  # all of them close by themselves; this guards against mistakes
    os.execvpe(argv[0], argv, env)


def _open(joined: JoinRequest) -> None:
    """Opens a file and sends its descriptor out; pipes and devices are refused without waiting."""
    request, answer = joined.request, socket.socket(fileno=os.dup(joined.fds[0]))
    path, is_write = _text(request, "path"), bool(request["write"])
    if is_write:
        os.makedirs(os.path.dirname(path) or "/", exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    else:
        flags = os.O_RDONLY
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise OSError(22, "it is not a regular file", path)
    if is_write:
        os.fchmod(fd, _number(request, "mode"))
    answer.sendmsg([b"ok"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
    _done(joined, {})


def _unpack(joined: JoinRequest) -> None:
    """Unpacks one of our archives into a folder."""
    target = _text(joined.request, "path")
    os.makedirs(target, exist_ok=True)
    with tarfile.open(fileobj=_file(joined.fds[0], "rb"), mode="r:") as archive:
        if hasattr(tarfile, "fully_trusted_filter"):  # before Python 3.11.4 all archives are trusted
            archive.extraction_filter = tarfile.fully_trusted_filter
        for member in archive:
            archive.extract(member, target)
    _done(joined, {})


def _pack(joined: JoinRequest) -> None:
    """Packs a file or a folder's content: regular files and folders; others are counted."""
    source, most = _text(joined.request, "path"), _number(joined.request, "most_bytes")
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    left_out = 0

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        nonlocal left_out
        if member.isreg() or member.isdir():
            return member
        left_out += 1
        return None

    with tarfile.open(fileobj=_file(joined.fds[0], "wb"), mode="w:", format=tarfile.PAX_FORMAT) as archive:
        if stat.S_ISDIR(os.stat(source).st_mode):
            for name in sorted(os.listdir(source)):
                archive.add(os.path.join(source, name), name, filter=plain)
        else:
            archive.add(os.path.realpath(source), os.path.basename(source), filter=plain)
    _done(joined, {"left_out": left_out})


def _signal(joined: JoinRequest) -> None:
    """Sends a signal to every process but the box's first process and this one."""
    _signal_all(signal.Signals(_number(joined.request, "signal")))


def _kill(joined: JoinRequest) -> None:
    """Kills processes that began at `since` or later: all, or only descendants of `root` and its session."""
    request = joined.request
    since, root, spare = _number(request, "since"), _number(request, "root"), request["spare"]
    assert isinstance(spare, list)
    killed = 0
    is_stopped = False
    for number in range(MOST_ROUNDS):
        left = [pid for pid in _chosen(root, since) if pid not in spare]
        if not left:
            break
        if number >= ROUNDS_WHILE_RUNNING:  # they fork faster than they are killed: stopped processes cannot fork
            is_stopped = True
            _signal_all(signal.SIGSTOP)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
    if is_stopped:
        _signal_all(signal.SIGCONT)
    _done(joined, {"killed": killed})


def _signal_all(number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, number)


def _facts() -> dict[int, tuple[int, int, int]]:
    """Parent, session and start of each process of the box that has not ended, except its first and this one."""
    facts: dict[int, tuple[int, int, int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in (1, os.getpid()):
            continue
        with contextlib.suppress(OSError, IndexError):
            with open(f"/proc/{name}/stat", "rb") as file:
                words = file.read().rpartition(b")")[2].split()
            if words[0] not in (b"Z", b"X"):
                facts[int(name)] = (int(words[1]), int(words[3]), int(words[19]))
    return facts


def _chosen(root: int, since: int) -> list[int]:
    """The processes that began late enough; with a root, only its own."""
    facts = _facts()
    late = [pid for pid, (_, _, began) in facts.items() if began >= since]
    if not root:
        return late
    members = {root}
    while True:
        more = {pid for pid, (parent, session, _) in facts.items() if parent in members or session == root} - members
        if not more:
            return [pid for pid in late if pid in members]
        members |= more


def _make_folder(joined: JoinRequest) -> None:
    os.makedirs(_text(joined.request, "path"), exist_ok=True)
    _done(joined, {})


def _count(joined: JoinRequest) -> None:
    """How many processes run besides the first."""
    _done(joined, {"processes": len(_facts())})


def _file(fd: int, mode: str) -> IO[bytes]:
    file: IO[bytes] = os.fdopen(os.dup(fd), mode)
    return file


def _done(joined: JoinRequest, said: Mapping[str, object]) -> None:
    os.write(joined.fds[-1], f"ok {json.dumps(said)}\n".encode())


WORK: Mapping[str, Work] = {
    "exec": _run,
    "open": _open,
    "unpack": _unpack,
    "pack": _pack,
    "signal": _signal,
    "kill": _kill,
    "mkdir": _make_folder,
    "count": _count,
}
