"""The system calls that Python 3.11 does not wrap: namespaces, mounts and capabilities, through libc."""

from __future__ import annotations

import ctypes
import os

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
MS_NOSUID_NODEV = 0x2 | 0x4
MS_PRIVATE_ALL = 0x40000 | 0x4000
MNT_DETACH = 2
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
LAST_CAPABILITY = 63
CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def mount(source: str, target: str, kind: str, options: str, *, flags: int = MS_NOSUID_NODEV) -> None:
    """Mounts a file system."""
    arguments = [text.encode() if text else None for text in (source, target, kind)]
    _checked(_libc.mount(*arguments, ctypes.c_ulong(flags), options.encode() or None), f"mount {kind} on {target}")


def unmount(target: str) -> None:
    """Unmounts lazily; processes that use the mount keep it until they end."""
    _checked(_libc.umount2(target.encode(), MNT_DETACH), f"unmount {target}")


def unshare(flags: int) -> None:
    """Moves this process into new namespaces."""
    _checked(_libc.unshare(flags), "unshare")


def enter(pid_fd: int, flags: int) -> None:
    """Joins the namespaces of a process."""
    _checked(_libc.setns(pid_fd, flags), "setns")


def set_option(option: int, value: int) -> None:
    """Calls prctl with one argument."""
    _checked(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl {option}")


def drop_privileges() -> None:
    """Gives up every capability for good, and any way to gain one by starting a program."""
    for capability in range(LAST_CAPABILITY + 1):
        if _libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) != 0:
            break  # the kernel has no more
    _libc.prctl(PR_CAP_AMBIENT, ctypes.c_ulong(4), 0, 0, 0)  # clear all
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    none = (ctypes.c_uint32 * 6)()
    _checked(_libc.capset(header, none), "capset")
    set_option(PR_SET_NO_NEW_PRIVS, 1)
