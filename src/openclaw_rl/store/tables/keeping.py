"""Which weights stay on the disk: versions that can be pruned, those that were, and versions a page at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.store.codec import plain
from openclaw_rl.store.rows import VersionRow, VersionStatus
from openclaw_rl.store.tables import versions
from openclaw_rl.store.threads import Reader, Transaction, Writer

AT_ONCE = 64  # pruned versions whose samples are counted in one read: other reads run in between


@dataclass(frozen=True, slots=True)
class Keep:
    """How many of the newest passed and of the newest refused versions are kept in each scope, and `also` these."""

    passed: int
    refused: int
    also: frozenset[PolicyVersion] = frozenset()


@dataclass(frozen=True, slots=True)
class Erased:
    """Erased samples of the version whose step consumed them."""

    version: PolicyVersion
    samples: int


class KeepingBook:
    """Records which versions have no weights any more, before these are removed, so that a crash can be repaired."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    async def superfluous(self, keep: Keep) -> list[PolicyVersion]:
        """The versions whose weights are not needed, oldest first in each scope."""
        return await self._reader.do(lambda sql: superfluous(sql, keep))

    async def prune(self, chosen: Collection[PolicyVersion], keep: Keep, *, at_s: float) -> list[PolicyVersion]:
        """Marks those chosen versions as pruned that are still superfluous, and returns them; synced to disk."""

        def work(tx: Transaction) -> list[PolicyVersion]:
            found = [version for version in superfluous(tx.sql, keep) if version in chosen]
            for version in found:
                versions.prune(tx.sql, version, at_s)
            return found

        return await self._writer.do(work, is_synced=True) if chosen else []

    async def pruned(self) -> list[PolicyVersion]:
        """All versions without weights, in the order in which they were made."""

        def read(sql: sqlite3.Connection) -> list[PolicyVersion]:
            rows = sql.execute("SELECT scope, number FROM versions WHERE pruned_s IS NOT NULL ORDER BY seq")
            return [PolicyVersion(str(scope), int(number)) for scope, number in rows]

        return await self._reader.do(read)

    async def restored(self, version: PolicyVersion) -> None:
        """Records that the version's weights are there again; synced to disk."""
        await self._writer.do(lambda tx: versions.prune(tx.sql, version, None), is_synced=True)

    async def page(self, *, limit: int, before: PolicyVersion | None = None) -> list[VersionRow]:
        """The newest versions, or the newest made before this one, at most this many; oldest first."""
        return await self._reader.do(lambda sql: page(sql, limit, before))

    async def erased(self, upto: PolicyVersion) -> dict[PolicyVersion, Erased]:
        """The pruned versions up to this one that cannot be made again, each with the version whose samples are erased.

        That is the version itself, or the nearest pruned one it was made from or is based on that lacks a sample.
        """
        found: dict[PolicyVersion, Erased] = {}
        seq = 0
        while True:
            rows = await self._reader.do(lambda sql, after=seq: list(_pruned_after(sql, after, upto)))  # type: ignore[misc]
            for _, row, lacking in rows:
                own = Erased(row.version, lacking) if lacking else None
                below = next((found[one] for one in (row.parent, row.upon) if one in found), None)
                if (lost := own or below) is not None:
                    found[row.version] = lost
            if len(rows) < AT_ONCE:
                return found
            seq = rows[-1][0]


def superfluous(sql: sqlite3.Connection, keep: Keep) -> list[PolicyVersion]:
    """The versions with weights that are not, and will not soon be, served, continued, compared or used as a base.

    None while any forgetting is unfinished: its rebuilding may start from any of them.
    """
    if sql.execute("SELECT 1 FROM forgettings WHERE phase <> 'done'").fetchone() is not None:
        return []
    kept = {*keep.also, *_ordered(sql)}
    held: dict[PolicyVersion, str | None] = {}
    newest: dict[tuple[str, str], int] = {}
    most = {VersionStatus.LIVE.value: keep.passed, VersionStatus.REFUSED.value: keep.refused}
    rows = sql.execute(
        "SELECT scope, number, status, upon FROM versions WHERE folder IS NOT NULL AND pruned_s IS NULL "
        "ORDER BY scope, number DESC"
    )
    for scope, number, status, upon in rows:
        version = PolicyVersion(str(scope), int(number))
        held[version] = upon
        newest[scope, status] = newest.get((scope, status), 0) + 1
        if status not in most or newest[scope, status] <= most[status]:
            kept.add(version)
    stood_upon = {held[version] for version in kept if version in held}
    return sorted(version for version in held if version not in kept and str(version) not in stood_upon)


def page(sql: sqlite3.Connection, limit: int, before: PolicyVersion | None) -> list[VersionRow]:
    """The newest versions, or the newest made before this one, at most this many; oldest first."""
    where, values = "", list[str | int]()
    if before is not None:
        where = "WHERE seq < (SELECT seq FROM versions WHERE scope = ? AND number = ?)"
        values = [plain(before.scope), before.number]
    rows = sql.execute(
        f"SELECT scope, number FROM versions {where} ORDER BY seq DESC LIMIT ?", (*values, limit)
    ).fetchall()
    found = [versions.find(sql, str(scope), int(number)) for scope, number in reversed(rows)]
    return [row for row in found if row is not None]


def _ordered(sql: sqlite3.Connection) -> Iterator[PolicyVersion]:
    """The versions that are served, that are pinned, and that training continues from during a pin."""
    for question in (
        "SELECT scope, number FROM current",
        "SELECT scope, number FROM pins",
        "SELECT scope, ahead FROM pins WHERE ahead IS NOT NULL",
    ):
        for scope, number in sql.execute(question):
            yield PolicyVersion(str(scope), int(number))


def _pruned_after(sql: sqlite3.Connection, seq: int, upto: PolicyVersion) -> Iterator[tuple[int, VersionRow, int]]:
    """The next pruned versions in the order they were made, and how many of its samples each lacks."""
    rows = sql.execute(
        "SELECT seq, scope, number FROM versions WHERE pruned_s IS NOT NULL AND seq > ? "
        "AND seq <= (SELECT seq FROM versions WHERE scope = ? AND number = ?) ORDER BY seq LIMIT ?",
        (seq, plain(upto.scope), upto.number, AT_ONCE),
    ).fetchall()
    for place, scope, number in rows:
        row = versions.find(sql, str(scope), int(number))
        assert row is not None
        yield int(place), row, _lacking(sql, row.read)


def _lacking(sql: sqlite3.Connection, turns: Sequence[str]) -> int:
    wanted = [plain(turn) for turn in turns]
    question = "SELECT 1 FROM samples WHERE turn = ?"
    return sum(sql.execute(question, (turn,)).fetchone() is None for turn in wanted)
