"""What was learned from one user in vain is taken back: their corrections got no fewer by it."""

from __future__ import annotations

import logging

from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import AdapterError
from openclaw_rl.publish.swap import Served
from openclaw_rl.publish.watch import path_to
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import VersionStatus

log = logging.getLogger(__name__)


async def take_back(store: Store, served: Served, user: str, version: PolicyVersion) -> bool:
    """Serves `version` again, where all that was made since was learned from this user alone.

    Nothing happens where it is served already, another is pinned, others taught meanwhile, or its folder is damaged.
    """
    scope = version.scope
    current, rows = await store.current(scope), await store.versions()
    path = path_to(rows, current)
    if version not in path[1:] or await store.orders.pinned(scope) is not None:
        return False
    newer = [row for row in rows if row.version in path[: path.index(version)]]
    for turn in (turn for row in newer for turn in row.turns):
        held = await store.turn(turn)
        if held is None or held.user != user:
            return False
    row = None if version.is_base else next((row for row in rows if row.version == version), None)
    try:
        if row is not None:
            await served.load(row)
    except AdapterError as problem:
        log.warning("cannot go back to version=%s: %s", version, problem)
        return False
    why = f"taken back: {user} corrected as often as before, so what was learned since {version} was learned in vain"
    await served.swap(version, why=why)
    for one in newer:
        await store.settle(one.version, VersionStatus.LIVE, why, {})
    log.warning("version=%s is served again, and %s was %s", version, current, why)
    return True
