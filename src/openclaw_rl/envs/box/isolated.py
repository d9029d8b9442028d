"""Boxes made of namespaces: bubblewrap over an overlay, or over a copied folder if overlays are not available."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.envs.box.base import PYTHON_FOLDER, cached_base, give, host_folders
from openclaw_rl.envs.box.cgroups import ControlGroup, Groups, find_groups
from openclaw_rl.envs.box.isolated_box import IsolatedBox, Layers
from openclaw_rl.envs.box.kept import Layout
from openclaw_rl.envs.box.link import MARK, KeeperLink
from openclaw_rl.envs.box.sandbox import HOST, BoxSpec, Snapshot
from openclaw_rl.envs.box.under_way import as_box_error
from openclaw_rl.errors import BoxError

BOX_UID = 523_776  # owner of boxes if root makes them: a number that no account has
WATCH_S = 1.0
STRAY_LOOKS, STRAY_PAUSE_S = 50, 0.02
PREFIX = "openclaw-rl-boxes-"


@dataclass(frozen=True, slots=True)
class Means:
    """What a machine offers for making boxes."""

    bwrap: str
    has_overlay: bool = True
    is_in_memory: bool = True


class IsolatedBoxes:
    """Makes boxes that share one keeper."""

    def __init__(self, place: Path, means: Means, groups: Groups | None) -> None:
        self._place = place
        self._means = means
        self._groups = groups
        self._boxes: dict[str, IsolatedBox] = {}
        self._made = 0
        self._is_closed = False
        self._let_go: set[Layers] = set()
        self._watching: asyncio.Task[None] | None = None
        self._uid = BOX_UID if os.geteuid() == 0 else None
        owner = BOX_UID if self._uid is not None else os.getuid()
        self._host_base, python = cached_base(place.parent, owner)
        self._has_pytest = python is not None
        give(place, owner)
        bound = [(folder, folder) for folder in host_folders()]
        if python is not None:
            bound.append((str(python), PYTHON_FOLDER))
        layout = Layout(means.bwrap, means.has_overlay, means.is_in_memory, tuple(bound))
        self._keeper = KeeperLink.start(place, layout, self._uid)

    @classmethod
    def open(cls, means: Means, *, groups: bool = True, parent: Path | None = None) -> IsolatedBoxes:
        """Starts a maker of boxes; BoxError if this machine does not allow them. Takes about 200 ms."""
        above = parent or Path(tempfile.gettempdir())
        _sweep(above)
        name = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        place = above / (PREFIX + name)
        try:
            place.mkdir(0o700)
            return cls(place, means, find_groups(name) if groups else None)
        except OSError as problem:
            shutil.rmtree(place, ignore_errors=True)
            raise as_box_error(problem) from problem
        except BoxError:
            shutil.rmtree(place, ignore_errors=True)
            raise

    @property
    def limits_in_force(self) -> Mapping[str, str]:
        """Each limit, and what enforces it."""
        held = self._groups.controllers if self._groups is not None else frozenset()
        group = f"control group v{self._groups.version}" if self._groups is not None else ""
        return {
            "files": "overlay" if self._means.has_overlay else "a copied folder",
            "network": "a namespace of its own",
            "memory": f"{group}, memory and files together" if "memory" in held else "rlimit of each process",
            "processes": f"{group} and rlimit" if "pids" in held else "rlimit in its user namespace",
            "cores": group if "cpu" in held else "not held",
            "cpu time": "rlimit of each process",
            "disk": "a file system in memory" if self._means.is_in_memory else "looking at it every second",
            "wall time": "each command",
            "output": "each command",
        }

    @property
    def has_root(self) -> bool:
        """Whether paths such as /app are the box's own."""
        return True

    @property
    def has_pytest(self) -> bool:
        """Whether tests may use pytest on the base of this machine."""
        return self._has_pytest

    @property
    def place(self) -> Path:
        """The folder of snapshots and the base."""
        return self._place

    @property
    def keeper_pid(self) -> int:
        """The process that makes all boxes."""
        return self._keeper.pid

    async def create(self, spec: BoxSpec, *, at: Snapshot | None = None) -> IsolatedBox:
        """A new box, in the state of a snapshot if one is given."""
        if self._is_closed:
            raise BoxError("these boxes were closed", fix="open the boxes again")
        if at is not None and not isinstance(at, Layers):
            raise BoxError(f"{at.name} is not a snapshot of this kind of box")
        layers = at if at is not None else self._base(spec)
        self._made += 1
        name = f"b{self._made}"
        group = self._group(name, spec)
        doors = group.open_doors() if group is not None else []
        box = IsolatedBox(self, self._keeper, name=name, spec=spec, layers=layers, group=group)
        fields = {
            "box": name,
            "layers": list(layers.names),
            "options": {
                "network": spec.network,
                "disk_mb": spec.limits.disk_mb,
                "host_usr": layers.is_host,
            },
        }
        try:
            await box.begin(await self._keeper.ask("create", fields, doors))
        except BaseException as problem:
            await self._keeper_close(name)
            if group is not None:
                group.remove()
            if isinstance(problem, OSError):
                raise as_box_error(problem) from problem
            raise
        finally:
            for door in doors:
                os.close(door)
        self._boxes[name] = box
        if self._watching is None and not self._means.is_in_memory:
            self._watching = asyncio.get_running_loop().create_task(self._watch_disks())
        return box

    async def build_image(self, folder: Path, *, timeout_s: float) -> str | None:
        """None: there is no engine."""
        return None

    def _group(self, name: str, spec: BoxSpec) -> ControlGroup | None:
        if self._groups is None:
            return None
        try:
            return self._groups.make(name, spec.limits)
        except OSError as problem:
            raise as_box_error(problem) from problem

    def _base(self, spec: BoxSpec) -> Layers:
        if spec.base == HOST:
            return Layers((str(self._host_base),), is_host=True)
        folder = Path(spec.base)
        if not (folder / "bin" / "bash").exists():
            raise BoxError(f"{folder} is not a root folder: it has no bin/bash", fix="give one, or `host`")
        owner = self._uid if self._uid is not None else os.getuid()
        if folder.stat().st_uid != owner:
            raise BoxError(
                f"the root folder {folder} belongs to user {folder.stat().st_uid}; boxes run as {owner}",
                fix=f"chown -hR {owner}:{owner} {folder}",
            )
        return Layers((str(folder.resolve()),), is_host=False)

    async def keep(self, box: IsolatedBox) -> Layers:
        """The snapshot of a box."""
        self._made += 1
        fields = {"box": box.id, "name": f"s{self._made}"}
        names = (await self._keeper.ask("snapshot", fields))["layers"]
        assert isinstance(names, list)
        return Layers(tuple(names), is_host=box.layers.is_host)

    async def drop(self, snapshot: Snapshot) -> None:
        """Removes a snapshot that no box is based on."""
        assert isinstance(snapshot, Layers)
        users = self._users(snapshot)
        if users:
            raise BoxError(f"snapshot {snapshot.name} is in use by {', '.join(users)}", fix="close these boxes first")
        await self._keeper.ask("drop", {"name": snapshot.name})

    async def remove(self, box: IsolatedBox) -> None:
        """Removes a box."""
        if self._boxes.pop(box.id, None) is not None:
            await self._keeper_close(box.id)
            if box.group is not None:
                box.group.remove()

        unused = {snapshot for snapshot in self._let_go if not self._users(snapshot)}
        self._let_go -= unused
        for snapshot in unused:
            await self.drop(snapshot)

    async def let_go(self, snapshot: Layers) -> None:
        """Removes a snapshot as soon as no box is based on it."""
        if self._users(snapshot):
            self._let_go.add(snapshot)
        else:
            await self.drop(snapshot)

    def _users(self, snapshot: Layers) -> list[str]:
        return [box.id for box in self._boxes.values() if snapshot.name in box.layers.names]

    async def _watch_disks(self) -> None:
        """Checks disk use every second if nothing else limits what a box writes."""
        while True:
            await asyncio.sleep(WATCH_S)
            for box in [*self._boxes.values()]:
                with contextlib.suppress(BoxError):  # it was closed meanwhile
                    await box.watch_disk()

    async def _keeper_close(self, name: str) -> None:
        with contextlib.suppress(BoxError):  # without a keeper there is no box
            await self._keeper.ask("close", {"box": name})

    async def aclose(self) -> None:
        """Closes every box, ends the keeper, removes its files from the disk."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._watching is not None:
            self._watching.cancel()
        for box in [*self._boxes.values()]:
            await box.aclose()
        was_alive = self._keeper.is_alive
        await self._keeper.aclose()
        if not was_alive:
            _end_strays(self._place.name)
        if self._groups is not None:
            self._groups.remove()
        _remove(self._place)


def _sweep(above: Path) -> None:
    """Removes the remains of processes that have ended."""
    for folder in above.glob(f"{PREFIX}*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        with contextlib.suppress(FileNotFoundError):  # another process has swept it
            if pid.isdigit() and not Path("/proc", pid).exists() and folder.stat().st_uid in (os.geteuid(), BOX_UID):
                _end_strays(folder.name)
                _remove(folder)


def _end_strays(name: str) -> None:
    """Kills processes that made boxes for a maker that has ended; finished boxes ended with it."""
    mark, looks = f"{MARK}={name}".encode(), 0
    while _kill_marked(mark) and looks < STRAY_LOOKS:  # until there are none: some may still have been starting
        looks += 1
        time.sleep(STRAY_PAUSE_S)


def _kill_marked(mark: bytes) -> int:
    count = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)
                count += 1
    return count


def _remove(folder: Path) -> None:
    for root, folders, _ in os.walk(folder):
        for name in folders:
            with contextlib.suppress(OSError):
                if not os.path.islink(os.path.join(root, name)):
                    os.chmod(os.path.join(root, name), 0o700, follow_symlinks=True)
    shutil.rmtree(folder, ignore_errors=True)
