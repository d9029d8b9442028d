"""What is needed to take past steps again: the versions one stands on, oldest first, and the samples they consumed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from openclaw_rl.core.sample import Sample
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.store.codec import plain
from openclaw_rl.store.rows import VersionRow
from openclaw_rl.store.tables import samples


def lineage(rows: Sequence[VersionRow], heads: Iterable[PolicyVersion]) -> list[VersionRow]:
    """These versions and all that they were made from or stand on, oldest first, base models left out."""
    by_version = {row.version: row for row in rows}
    wanted: set[PolicyVersion] = set()
    open_ones = list(heads)
    while open_ones:
        version = open_ones.pop()
        row = by_version.get(version)
        if version.is_base or version in wanted or row is None:
            continue
        wanted.add(version)
        open_ones += [item for item in (row.parent, row.upon) if item is not None]
    return [row for row in rows if row.version in wanted]


def samples_of(sql: sqlite3.Connection, turns: Iterable[str]) -> list[Sample]:
    """The samples of these turns, in the order given; those that are gone are left out."""
    found: list[Sample] = []
    for turn in turns:
        row = sql.execute("SELECT body, ids, logp, mask FROM samples WHERE turn = ?", (plain(turn),)).fetchone()
        if row is not None:
            found.append(samples.sample_of_row(row))
    return found
