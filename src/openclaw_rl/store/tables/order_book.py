"""The owner's orders: that a scope is served one version whatever is trained, and that no step is taken."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping

from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.store.codec import plain
from openclaw_rl.store.rows import VersionRow, VersionStatus
from openclaw_rl.store.tables import versions
from openclaw_rl.store.threads import Reader, Transaction, Writer


class OrderBook:
    """Orders outlive the program. Every method that changes one returns once it is on the disk."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    async def pins(self) -> dict[str, PolicyVersion]:
        """The pinned version of each scope that has one."""
        return await self._reader.do(_pins)

    async def pinned(self, scope: str) -> PolicyVersion | None:
        """The version that this scope is served whatever is trained."""
        return (await self.pins()).get(scope)

    async def head(self, scope: str) -> PolicyVersion:
        """The version training continues from: the served one or, during a pin, the newest that passed the gate."""
        return await self._reader.do(lambda sql: _head(sql, scope))

    async def pin(self, version: PolicyVersion, *, at_s: float) -> None:
        """From now on this version is served, and no trained one replaces it.

        Training continues from the version served before. Raises ValueError for a version that cannot be served.
        """

        def work(tx: Transaction) -> None:
            head = _head(tx.sql, version.scope)
            versions.serve(tx, version, "pinned by hand")
            tx.sql.execute(
                "INSERT INTO pins VALUES (?, ?, ?, ?) ON CONFLICT (scope) DO UPDATE SET number = excluded.number, "
                "ahead = excluded.ahead, at_s = excluded.at_s",
                (version.scope, version.number, None if head == version else head.number, at_s),
            )

        await self._writer.do(work, is_synced=True)

    async def unpin(self, scope: str) -> PolicyVersion | None:
        """Removes the pin; returns the version served from now on, the newest trained, or None without a pin."""

        def work(tx: Transaction) -> PolicyVersion | None:
            if scope not in _pins(tx.sql):
                return None
            head = _head(tx.sql, scope)
            tx.sql.execute("DELETE FROM pins WHERE scope = ?", (plain(scope),))
            versions.serve(tx, head, "no longer pinned")
            return head

        return await self._writer.do(work, is_synced=True)

    async def go_on_from(self, version: PolicyVersion, *, instead_of: str) -> bool:
        """The version's weights are there again: whatever continued from an ancestor instead continues from it.

        That is the version served for the reason `instead_of`, or the one that training continues from during a pin.
        True if the version is served from now on.
        """

        def work(tx: Transaction) -> bool:
            versions.prune(tx.sql, version, None)
            row = versions.get(tx.sql, version)
            scope, head = version.scope, _head(tx.sql, version.scope)
            if row is None or row.status is not VersionStatus.LIVE or head not in _older(tx.sql, row):
                return False
            if scope in _pins(tx.sql):
                tx.sql.execute("UPDATE pins SET ahead = ? WHERE scope = ?", (version.number, plain(scope)))
                return False
            held = tx.sql.execute("SELECT why FROM current WHERE scope = ?", (plain(scope),)).fetchone()
            if held is None or str(held[0]) != instead_of:
                return False
            versions.serve(tx, version, instead_of)
            return True

        return await self._writer.do(work, is_synced=True)

    async def pass_behind_pin(self, row: VersionRow, *, why: str, metrics: Mapping[str, float]) -> None:
        """The version passed the gate and is not served; training continues from it."""

        def work(tx: Transaction) -> None:
            versions.decide(tx, row.version, VersionStatus.LIVE, why, dict(metrics))
            tx.sql.execute("UPDATE pins SET ahead = ? WHERE scope = ?", (row.version.number, plain(row.version.scope)))

        await self._writer.do(work, is_synced=True)

    async def frozen_since_s(self) -> float | None:
        """Since when no step is taken, in seconds since the epoch; None if steps are taken."""

        def read(sql: sqlite3.Connection) -> float | None:
            row = sql.execute("SELECT since_s FROM freezes").fetchone()
            return None if row is None else float(row[0])

        return await self._reader.do(read)

    async def freeze(self, *, at_s: float) -> None:
        """From now on no step is taken. Freezing twice is not an error."""
        order = "INSERT OR IGNORE INTO freezes VALUES (1, ?)"
        await self._writer.do(lambda tx: tx.sql.execute(order, (at_s,)).rowcount, is_synced=True)

    async def unfreeze(self) -> bool:
        """Steps are taken again; False if they already were."""
        return await self._writer.do(lambda tx: tx.sql.execute("DELETE FROM freezes").rowcount > 0, is_synced=True)


def _pins(sql: sqlite3.Connection) -> dict[str, PolicyVersion]:
    rows = sql.execute("SELECT scope, number FROM pins")
    return {str(scope): PolicyVersion(str(scope), int(number)) for scope, number in rows}


def _head(sql: sqlite3.Connection, scope: str) -> PolicyVersion:
    """The version that training continues from; one that was forgotten meanwhile does not count."""
    row = sql.execute("SELECT ahead FROM pins WHERE scope = ?", (plain(scope),)).fetchone()
    if row is not None and row[0] is not None:
        ahead = PolicyVersion(scope, int(row[0]))
        held = versions.get(sql, ahead)
        if ahead.is_base or (held is not None and held.status is VersionStatus.LIVE):
            return ahead
    return versions.current(sql, scope)


def _older(sql: sqlite3.Connection, row: VersionRow) -> Iterator[PolicyVersion]:
    """The ancestors of a version, newest first, down to the base model."""
    parent = row.parent
    while parent is not None:
        yield parent
        held = versions.get(sql, parent)
        parent = None if held is None else held.parent
