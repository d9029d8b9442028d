"""Control groups, version 2 or 1, if this process may make them: they limit memory, processes and cores of a box."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.envs.box.sandbox import BoxLimits

ROOT = Path("/sys/fs/cgroup")
FOLDER = "openclaw-rl"
WANTED = ("memory", "pids", "cpu")
PERIOD_US = 100_000


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """The group of one box: a folder for each controller, the same one for all in version 2."""

    folders: dict[str, Path]
    is_v2: bool

    def open_doors(self) -> list[int]:
        """Files to which a process writes 0 to join."""
        return [os.open(folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC) for folder in set(self.folders.values())]

    def out_of_memory(self) -> int:
        """How many processes were killed because the box was out of memory."""
        if "memory" not in self.folders:
            return 0
        name = "memory.events" if self.is_v2 else "memory.oom_control"
        return _fact(self.folders["memory"] / name, "oom_kill")

    def memory_bytes(self) -> int | None:
        """The memory that the box uses, including its files."""
        if "memory" not in self.folders:
            return None
        name = "memory.current" if self.is_v2 else "memory.usage_in_bytes"
        return int((self.folders["memory"] / name).read_text())

    def remove(self) -> None:
        """Removes the group; its processes must have ended."""
        for folder in set(self.folders.values()):
            with contextlib.suppress(OSError):  # a process is still ending: the next start removes the group
                folder.rmdir()


class Groups:
    """The groups of the boxes that one process makes."""

    def __init__(self, parents: dict[str, Path], *, is_v2: bool) -> None:
        self._parents = parents
        self._is_v2 = is_v2

    @property
    def controllers(self) -> frozenset[str]:
        """What can be limited."""
        return frozenset(self._parents)

    @property
    def version(self) -> int:
        """Which version of control groups."""
        return 2 if self._is_v2 else 1

    def make(self, name: str, limits: BoxLimits) -> ControlGroup:
        """The group of a box. Its files are in memory and count towards the limit, so it covers memory and disk."""
        folders = {controller: parent / name for controller, parent in self._parents.items()}
        for folder in set(folders.values()):
            folder.mkdir()
        total = (limits.memory_mb + limits.disk_mb) << 20
        if "memory" in folders:
            _write(folders["memory"] / ("memory.max" if self._is_v2 else "memory.limit_in_bytes"), str(total))
            swap = "memory.swap.max" if self._is_v2 else "memory.memsw.limit_in_bytes"
            with contextlib.suppress(OSError):  # not every kernel accounts for swap
                _write(folders["memory"] / swap, "0" if self._is_v2 else str(total))
        if "pids" in folders:
            _write(folders["pids"] / "pids.max", str(limits.processes + 1))  # the box's own first process
        if "cpu" in folders and limits.cpus is not None:
            quota = int(limits.cpus * PERIOD_US)
            if self._is_v2:
                _write(folders["cpu"] / "cpu.max", f"{quota} {PERIOD_US}")
            else:
                _write(folders["cpu"] / "cpu.cfs_quota_us", str(quota))
        return ControlGroup(folders, self._is_v2)

    def remove(self) -> None:
        """Removes the groups made for this process."""
        for parent in set(self._parents.values()):
            for folder in [*parent.iterdir()]:
                if folder.is_dir():
                    with contextlib.suppress(OSError):
                        folder.rmdir()
            with contextlib.suppress(OSError):
                parent.rmdir()


def find_groups(name: str, *, root: Path = ROOT) -> Groups | None:
    """A place for this process's groups, or None if it may not write to any."""
    own = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            own.update(dict.fromkeys(controllers.split(","), path))
    if (root / "cgroup.controllers").exists():
        return _version_2(root / own.get("", "/").lstrip("/"), name)
    parents = {}
    for controller in WANTED:
        if controller in own:
            with contextlib.suppress(OSError):
                top = root / controller / FOLDER
                top.mkdir(exist_ok=True)
                _sweep(top)
                (top / name).mkdir()
                parents[controller] = top / name
    return Groups(parents, is_v2=False) if parents else None


def _version_2(at: Path, name: str) -> Groups | None:
    try:
        offered = set((at / "cgroup.controllers").read_text().split())
        have = [controller for controller in WANTED if controller in offered]
        top = at / FOLDER
        if not set(have) <= set((at / "cgroup.subtree_control").read_text().split()):
            _write(at / "cgroup.subtree_control", " ".join(f"+{controller}" for controller in have))
        top.mkdir(exist_ok=True)
        _sweep(top)
        _write(top / "cgroup.subtree_control", " ".join(f"+{controller}" for controller in have))
        (top / name).mkdir()
        _write(top / name / "cgroup.subtree_control", " ".join(f"+{controller}" for controller in have))
    except OSError:
        return None
    return Groups(dict.fromkeys(have, top / name), is_v2=True) if have else None


def _sweep(top: Path) -> None:
    """Removes groups left behind by processes that have ended; a group in use cannot be removed."""
    for parent in [folder for folder in top.iterdir() if folder.is_dir()]:
        pid = parent.name.partition("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            for folder in [inner for inner in parent.iterdir() if inner.is_dir()] + [parent]:
                with contextlib.suppress(OSError):
                    folder.rmdir()


def _fact(path: Path, name: str) -> int:
    for line in path.read_text().splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


def _write(path: Path, text: str) -> None:
    path.write_text(text)
