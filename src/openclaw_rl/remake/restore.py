"""Makes pruned weights again: takes their steps again from the nearest existing weights."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from openclaw_rl.core.adapter import Adapter
from openclaw_rl.core.disk import sync
from openclaw_rl.core.inside import remove
from openclaw_rl.core.manifest import FILE_NAME, version_folder
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.errors import AdapterError, EngineError, StoreError
from openclaw_rl.publish.swap import ServedVersions
from openclaw_rl.publish.versions import verified
from openclaw_rl.remake.forget_plan import ForgetPlan
from openclaw_rl.remake.steps import RetakeResult, StartWeights, StepReplayer, past_step
from openclaw_rl.store.db import Store
from openclaw_rl.store.forget.erase import WHY_BACK
from openclaw_rl.store.rows import VersionRow

log = logging.getLogger(__name__)

FOLDER = "ground"


@dataclass(frozen=True, slots=True)
class RestoredStep:
    """A step taken again: its number of samples, the number missing, and the two digests."""

    version: PolicyVersion
    samples: int
    missing: int
    digest: str | None
    was: str

    @property
    def is_equal(self) -> bool:
        """Whether the weights are those that were removed."""
        return self.digest == self.was


@dataclass(slots=True)
class WeightRestorer:
    """Makes weights again in `scratch`, a folder in the home folder, and puts them back if their digest is equal."""

    store: Store
    home: Path
    taking: StepReplayer
    scratch: Path
    steps: list[RestoredStep] = field(default_factory=list)

    async def restore(self, version: PolicyVersion) -> bool:
        """Whether the weights are back in the version's own folder; the row is not yet updated.

        The steps are taken in order and recorded in `steps`. It ends at the first that gives other weights;
        nothing is put back then. Raises StoreError, TrainerError, ConfigError.
        """
        rows = await self.store.versions()
        line = await asyncio.to_thread(pruned_line, rows, version)
        folders = {row.version: row.folder for row in rows if row.pruned_s is None}
        last: RetakeResult | None = None
        for row in line:
            past = past_step(row)
            ground = StartWeights(folders.get(past.parent), folders.get(past.upon) if past.upon is not None else None)
            out = self.scratch / str(row.version)
            await asyncio.to_thread(out.mkdir, parents=True)
            batches = [await self.store.effects.samples(batch) for batch in past.batches]
            last = await self.taking.take(past, [one for one in batches if one], ground, out, row.version)
            read = 0 if last is None else len(last.turns) + len(last.rehearsed)
            missing = past.had - sum(len(batch) for batch in batches)
            digest = None if last is None else last.adapter.digest
            self.steps.append(RestoredStep(row.version, read, missing, digest, row.digest))
            if last is None or not self.steps[-1].is_equal:
                log.warning(
                    "version=%s cannot be made again: missing samples=%d digest=%s", row.version, missing, digest
                )
                return False
            folders[row.version] = last.adapter.folder
        if last is None:
            return False
        await asyncio.to_thread(
            put_back,
            self.home,
            Adapter(version_folder(self.home, version), last.adapter.digest, version),
            last.adapter.folder,
        )
        log.info("restored version=%s steps=%d", version, len(line))
        return True

    async def clear(self) -> None:
        """Removes the intermediate weights."""
        await asyncio.to_thread(remove, self.home, self.scratch)


def pruned_line(rows: Sequence[VersionRow], version: PolicyVersion) -> list[VersionRow]:
    """The version and the versions it was made from or is based on that also lack weights; oldest first."""
    pruned = {row.version: row for row in rows if row.pruned_s is not None}
    wanted: set[PolicyVersion] = set()
    open_ones = [version]
    while open_ones:
        row = pruned.get(open_ones.pop())
        if row is not None and row.version not in wanted:
            wanted.add(row.version)
            past = past_step(row)
            open_ones += [item for item in (None if past.is_fresh else past.parent, past.upon) if item is not None]
    return [row for row in rows if row.version in wanted]


def put_back(home: Path, adapter: Adapter, made: Path) -> None:
    """Moves the files that were made again into the version's own folder. Blocks.

    If interrupted, the version still counts as pruned. Raises StoreError if the folder is not in the
    home folder, or is incomplete.
    """
    if not adapter.folder.resolve().is_relative_to(home.resolve()):
        raise StoreError(
            f"{adapter.folder} points outside {home}; nothing was written there",
            fix="replace the link by the folder itself",
        )
    try:
        adapter.folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(made.iterdir()):
            if path.name != FILE_NAME:
                path.replace(adapter.folder / path.name)
        for path in (*adapter.folder.iterdir(), adapter.folder):
            sync(path)
        verified(adapter)
    except OSError as problem:
        raise StoreError(
            f"the weights of {adapter.version} cannot be put back: {problem}", fix="check the disk"
        ) from problem
    except AdapterError as problem:
        raise StoreError(problem.problem, fix="restore its folder from a backup") from problem


async def grounded(
    store: Store, home: Path, plan: ForgetPlan, taking: StepReplayer, served: ServedVersions | None
) -> tuple[ForgetPlan, tuple[PolicyVersion, ...]]:
    """The plan with steps that all start from existing weights, and the versions given up for it.

    The clean versions it starts from get their weights back, and are served again, if their samples still give the
    same bits. Otherwise these versions are made again like those that saw what is forgotten, over the
    remaining samples.
    """
    rows = await store.versions()
    restoring = WeightRestorer(store, home, taking, taking.scratch / FOLDER)
    lost: dict[PolicyVersion, VersionRow] = {}
    for version in _needed(rows, plan):
        line = await asyncio.to_thread(pruned_line, rows, version)
        await restoring.clear()
        if lost.keys().isdisjoint(row.version for row in line) and await restoring.restore(version):
            if await store.orders.go_on_from(version, instead_of=WHY_BACK):
                await _follow(store, served, version)
            rows = await store.versions()
        else:
            lost |= {row.version: row for row in line}
    await restoring.clear()
    if not lost:
        return plan, ()
    again = {past.version: past for past in (*map(past_step, lost.values()), *plan.past)}
    ordered = tuple(again.pop(row.version) for row in rows if row.version in again)
    return replace(plan, past=(*ordered, *again.values())), tuple(lost)


def _needed(rows: Sequence[VersionRow], plan: ForgetPlan) -> list[PolicyVersion]:
    """The pruned versions that a step of the plan starts from or is based on, oldest first."""
    open_ones = [past for past in plan.past if str(past.version) not in plan.made]
    again = {past.version for past in plan.past}
    ground = {version for past in open_ones for version in (past.parent, past.upon)} - again
    return [row.version for row in rows if row.pruned_s is not None and row.version in ground]


async def _follow(store: Store, served: ServedVersions | None, version: PolicyVersion) -> None:
    """Has the running server serve it too."""
    row = await store.version(version)
    if served is None or row is None:
        return
    try:
        if version.scope == SHARED:  # users' and agents' versions are loaded on request
            await served.load(row)
        await served.resume(version)
    except (EngineError, AdapterError) as problem:
        log.warning("version=%s is served from the next start on: %s", version, problem)
