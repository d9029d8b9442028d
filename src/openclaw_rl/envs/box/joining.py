"""Entering a box: a process joins its namespaces and forks there, and the fork does the work.

The first process stays outside the box's process namespace and reports how the second one ended. Neither can be traced,
and the second drops its privileges before it does the work.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from openclaw_rl.envs.box import syscalls

NAMESPACES = (
    syscalls.CLONE_NEWUSER
    | syscalls.CLONE_NEWNS
    | syscalls.CLONE_NEWPID
    | syscalls.CLONE_NEWIPC
    | syscalls.CLONE_NEWUTS
    | syscalls.CLONE_NEWCGROUP
)


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """Work for a box: the request and the file descriptors sent with it, that of the report last."""

    name: str
    request: Mapping[str, object]
    fds: tuple[int, ...]
    group_fds: tuple[int, ...] = ()


Work = Callable[[JoinRequest], None]


def fork_into(pid_fd: int, joined: JoinRequest, work: Work, *, network: bool) -> int:
    """The id of the process that waits for the fork."""
    pid = os.fork()
    if pid == 0:
        try:
            _wait_for(pid_fd, joined, work, network=network)
        finally:
            os._exit(1)
    return pid


def _wait_for(pid_fd: int, joined: JoinRequest, work: Work, *, network: bool) -> None:
    """Forks in the box, and reports `pid` at once and finally `end` with the wait status."""
    syscalls.set_option(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        syscalls.enter(pid_fd, NAMESPACES if network else NAMESPACES | syscalls.CLONE_NEWNET)
        child = os.fork()
    except OSError as problem:
        _say(joined, f"err {problem.errno} {problem}")
        os._exit(1)
    if child == 0:
        try:
            _work(joined, work)
        finally:
            os._exit(127)
    _close_all_but(joined.fds[-1:])
    _say(joined, f"pid {child}")
    _, status, usage = os.wait4(child, 0)
    _say(joined, f"end {status} {usage.ru_utime + usage.ru_stime:.6f}")
    os._exit(0)


def _work(joined: JoinRequest, work: Work) -> None:
    for fd in joined.group_fds:
        os.write(fd, b"0")
    syscalls.drop_privileges()
    os.umask(0o022)
    try:
        work(joined)
    except OSError as problem:
        _say(joined, f"err {problem.errno or 0} {problem}")
        os._exit(126)
    os._exit(0)


def _say(joined: JoinRequest, text: str) -> None:
    if joined.fds:
        try:
            os.write(joined.fds[-1], (" ".join(text.split()) + "\n").encode())
        except BrokenPipeError:
            os._exit(1)


def _close_all_but(kept: tuple[int, ...]) -> None:
    start = 0
    for fd in sorted(kept):
        os.closerange(start, fd)
        start = fd + 1
    os.closerange(start, 1 << 20)
