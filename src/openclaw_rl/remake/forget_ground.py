"""What a rebuilding starts from where that was pruned: its weights are made again first, or it is rebuilt too."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.errors import AdapterError, EngineError
from openclaw_rl.publish.swap import ServedVersions
from openclaw_rl.remake.forget_plan import ForgetPlan
from openclaw_rl.remake.restore import WeightRestorer, pruned_line
from openclaw_rl.remake.steps import StepReplayer, past_step
from openclaw_rl.store.db import Store
from openclaw_rl.store.forget.erase import WHY_BACK
from openclaw_rl.store.rows import VersionRow

log = logging.getLogger(__name__)
FOLDER = "ground"


async def grounded(
    store: Store, home: Path, plan: ForgetPlan, taking: StepReplayer, served: ServedVersions | None
) -> tuple[ForgetPlan, tuple[PolicyVersion, ...]]:
    """The plan whose steps all start from weights that are there, and the versions that were given up for it.

    The clean versions it starts from get their weights back, and are served again, where their samples still give the
    same bits. Where they do not, these versions are to be made again like those that saw what is forgotten, over the
    samples that are left.
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
    """The running server serves it too."""
    row = await store.version(version)
    if served is None or row is None:
        return
    try:
        if version.scope == SHARED:  # own versions are loaded when their owner asks
            await served.load(row)
        await served.resume(version)
    except (EngineError, AdapterError) as problem:
        log.warning("version=%s is served from the next start on: %s", version, problem)
