"""Checkpoints of the scopes trained last, kept in memory: one that is taken up again need not be read from disk."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

from openclaw_rl.trainers import checkpoint
from openclaw_rl.trainers.checkpoint import Checkpoint

Identity = tuple[tuple[int, int, int, int], ...]


class CheckpointCache:
    """At most `most` checkpoints; the one unused longest leaves.

    A checkpoint is found by its files themselves, which keep their identity when their folder is renamed and get
    another when they are written again.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Identity, Checkpoint] = OrderedDict()

    def read(self, folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> Checkpoint:
        """What a folder holds; see `checkpoint.read`. Whoever takes it copies what it changes."""
        identity = _identity(folder)
        found = None if identity is None else self._kept.get(identity)
        if found is None:
            found = checkpoint.read(folder, shapes)
        if identity is not None:
            self._put(identity, found)
        return found

    def put(self, folder: Path, written: Checkpoint) -> None:
        """Keeps what was just written there."""
        identity = _identity(folder)
        if identity is not None:
            self._put(identity, written)

    def __len__(self) -> int:
        return len(self._kept)

    def _put(self, identity: Identity, held: Checkpoint) -> None:
        self._kept[identity] = held
        self._kept.move_to_end(identity)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)


def _identity(folder: Path) -> Identity | None:
    try:
        found = [path.stat() for path in sorted(folder.iterdir()) if path.name in checkpoint.FILES]
    except OSError:
        return None
    return tuple((facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns) for facts in found)
