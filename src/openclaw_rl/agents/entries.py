"""The tasks of a run: found in folders, each with a unique name, and environments for one task at a time."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from openclaw_rl.envs.box.probe import BoxKind, open_boxes
from openclaw_rl.envs.open import EnvOptions, open_env
from openclaw_rl.envs.task import Env, Split, Task
from openclaw_rl.envs.tasks.source import TaskSource
from openclaw_rl.envs.tasks.sources import find_sources
from openclaw_rl.errors import TaskError


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """A task with the name by which a run knows it: its id, with its source's name if two sources share the id."""

    name: str
    task: Task
    source: TaskSource

    @property
    def family(self) -> str:
        """The family for its results: the family in its metadata, else its source."""
        family = self.task.metadata.get("family")
        return family if isinstance(family, str) and family else self.source.name


EnvOpener = Callable[[TaskEntry], Awaitable[Env]]


def task_entries(folders: Sequence[Path], split: Split | None) -> list[TaskEntry]:
    """Every task of a split (None: of all) below the folders. TaskError if there is none."""
    sources = [source for folder in folders for source in find_sources(folder)]
    held = [(source, task) for source in sources for task in source.tasks.values()]
    counts = Counter(task.id for _, task in held)
    found = [
        TaskEntry(task.id if counts[task.id] == 1 else f"{source.name}/{task.id}", task, source)
        for source, task in held
        if split is None or task.split is split
    ]
    if not found:
        splits = ", ".join(sorted({task.split.value for _, task in held})) or "none"
        asked = "" if split is None else f" of the split {split.value}"
        raise TaskError(
            f"there is no task{asked} in {', '.join(map(str, folders))}",
            fix=f"the splits that are there: {splits}; choose with --split, or give another folder",
        )
    return found


@asynccontextmanager
async def local_envs(
    kind: str, box: BoxKind, options: EnvOptions | None = None, *, pictures_every: int = 0
) -> AsyncIterator[EnvOpener]:
    """Environments on this machine, whose boxes are removed when the context ends.

    One in `pictures_every` takes pictures for the record; 0 for none.
    """
    boxes = await open_boxes(box)
    recorded = _every(pictures_every)

    async def opened(entry: TaskEntry) -> Env:
        own = replace(options or EnvOptions(), records=next(recorded))
        return open_env(kind, entry.source, boxes, options=own)

    try:
        yield opened
    finally:
        await boxes.aclose()


@asynccontextmanager
async def pool_envs(kind: str, urls: Sequence[str], *, run: str, pictures_every: int = 0) -> AsyncIterator[EnvOpener]:
    """Environments in one pool or several, which have the same tasks; pools share places fairly between `run` names.

    One in `pictures_every` takes pictures for the record. Raises ConfigError if the pools' key is not known.
    """
    from openclaw_rl.envs.pool.client import PoolClient, key_from_environment
    from openclaw_rl.envs.pool.env import PoolEnv

    recorded = _every(pictures_every)
    async with PoolClient(urls, key=key_from_environment(), run=run) as client:

        async def opened(entry: TaskEntry) -> Env:
            return PoolEnv(client, kind, source=entry.source.name, records=next(recorded))

        yield opened


def _every(count: int) -> Iterator[bool]:
    """Endlessly, True for the first of every N; with 0 never."""
    return (count > 0 and number % count == 0 for number in itertools.count())
