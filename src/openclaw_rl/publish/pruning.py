"""Pruning removes the weights of versions that are not needed any more; the record of what made them stays.

`manifest.json` and the adapter's configuration are kept, so that `openclaw-rl replay --restore` can make the weights
again, bit for bit, as long as the samples are there. A removal is recorded in the store before the files are removed:
if it is interrupted, it is finished at the next start.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from openclaw_rl.core.adapter import BULK
from openclaw_rl.core.inside import is_inside, remove
from openclaw_rl.core.manifest import FILE_NAME, version_folder, versions_folder
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.publish.settings import PublishSettings
from openclaw_rl.publish.swap import ServedVersions
from openclaw_rl.publish.watch import watched
from openclaw_rl.store.db import Store
from openclaw_rl.store.tables.keeping import Keep

log = logging.getLogger(__name__)
REFUSED = 3  # the newest of each scope, to be inspected and compared
AT_ONCE = 100  # versions in one transaction, so that storing a turn never waits long
BY_HAND_S = 60.0  # weights that are newer than their manifest by this were restored: by replay, or from a backup
KEPT_BY_HAND_S = 7 * 86_400.0  # restored weights stay for a week


@dataclass(frozen=True, slots=True)
class OnDisk:
    """How many versions have their weights on the disk, and the size of all their folders."""

    versions: int = 0
    bytes: int = 0


@dataclass(slots=True)
class Pruning:
    """Removes weights, in each scope all except the newest N and those in use. Publishing sets `due`."""

    store: Store
    served: ServedVersions
    settings: PublishSettings
    home: Path
    due: asyncio.Event = field(default_factory=asyncio.Event)
    now: Callable[[], float] = time.time
    on_disk: OnDisk = field(default_factory=OnDisk)
    _is_finished: bool = False

    async def once(self) -> list[PolicyVersion]:
        """One pass; returns the pruned versions. It first finishes what an earlier pass could not.

        Raises StoreError if something cannot be removed; the next pass continues with it.
        """
        if not self._is_finished:
            await self._finish(await self.store.keeping.pruned())
            self._is_finished = True
        found: list[PolicyVersion] = []
        if self.settings.keep_versions:
            back = await watched(self.store, self.settings.watch_turns)
            chosen = await self.store.keeping.superfluous(self._keep(back))
            chosen = await asyncio.to_thread(prunable, self.home, chosen, self.now())
            for start in range(0, len(chosen), AT_ONCE):
                self._is_finished = False
                piece = chosen[start : start + AT_ONCE]
                noted = await self.served.between_loads(partial(self._note, piece, back))
                await self._finish(noted)
                self._is_finished = True
                found += noted
        self.on_disk = await asyncio.to_thread(on_disk, self.home)
        return found

    def _keep(self, back: Collection[PolicyVersion]) -> Keep:
        return Keep(self.settings.keep_versions, REFUSED, frozenset((*back, *self.served.in_use)))

    async def _note(self, chosen: Collection[PolicyVersion], back: Collection[PolicyVersion]) -> list[PolicyVersion]:
        """Records the chosen versions, checked again in the same transaction; nothing is loaded meanwhile."""
        return await self.store.keeping.prune({*chosen}, self._keep(back), at_s=self.now())

    async def _finish(self, pruned: Collection[PolicyVersion]) -> None:
        freed = await asyncio.to_thread(remove_weights, self.home, pruned)
        if freed:
            log.info("pruned versions=%d bytes=%d newest=%s", len(pruned), freed, max(pruned, default=None))


def remove_weights(home: Path, versions: Iterable[PolicyVersion]) -> int:
    """Removes the weights of these versions if they still exist; returns how many bytes. Raises StoreError."""
    freed = 0
    for version in versions:
        for path in sorted(version_folder(home, version).glob(BULK)):
            size = path.stat().st_size
            remove(home, path)
            freed += size
    return freed


def prunable(home: Path, versions: Iterable[PolicyVersion], now_s: float) -> list[PolicyVersion]:
    """The versions that could be made again from what stays in their folders, and were not restored recently."""
    return [version for version in versions if _is_prunable(home, version_folder(home, version), now_s)]


def on_disk(home: Path) -> OnDisk:
    """The size of the folders of versions."""
    count = size = 0
    for folder in _entries(versions_folder(home)):
        files = _entries(Path(folder.path)) if folder.is_dir() else []
        count += any(fnmatch(item.name, BULK) for item in files)
        size += sum(_size(item) for item in files)
    return OnDisk(count, size)


def _is_prunable(home: Path, folder: Path, now_s: float) -> bool:
    manifest = folder / FILE_NAME
    if not manifest.is_file() or not is_inside(home, folder):
        return False
    made_s = manifest.stat().st_mtime
    written_s = max((path.stat().st_mtime for path in folder.glob(BULK)), default=made_s)
    return written_s - made_s < BY_HAND_S or now_s - written_s > KEPT_BY_HAND_S


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except FileNotFoundError:  # for example a step that is being discarded
        return []


def _size(item: os.DirEntry[str]) -> int:
    try:
        return item.stat().st_size if item.is_file() else 0
    except FileNotFoundError:
        return 0
