"""A version is refused, and what its step consumed waits again: both in one transaction, or neither."""

from __future__ import annotations

from dataclasses import dataclass

from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.store.reader import Reader
from openclaw_rl.store.rows import GIVEN_BACK, VersionStatus
from openclaw_rl.store.tables import lessons, versions
from openclaw_rl.store.writer import Transaction, Writer


class RefusalBook:
    """Refuses versions, and says what they gave back."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    async def refuse(self, version: PolicyVersion, refusal: Refusal) -> ReturnedSamples:
        """REFUSED, and what its step consumed waits again or is given up; synced to disk."""
        return await self._writer.do(lambda tx: refuse(tx, version, refusal), is_synced=True)

    async def returned(self, scope: str) -> dict[str, int]:
        """Of what waits for a step of this scope, what refused versions gave back, and how often each."""
        return await self._reader.do(lambda sql: lessons.returned(sql, scope))


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a version is refused, and with which measurements.

    What it learned from is given back up to `most` times. Where that is not `is_counted`, the version was refused for
    nothing that it learned.
    """

    why: str
    metrics: dict[str, float]
    most: int
    is_counted: bool = True


@dataclass(frozen=True, slots=True)
class ReturnedSamples:
    """The turns that wait for another step, and those that were given up."""

    waiting: tuple[str, ...] = ()
    given_up: tuple[str, ...] = ()


def refuse(transaction: Transaction, version: PolicyVersion, refusal: Refusal) -> ReturnedSamples:
    """REFUSED with the reason. Turns that were forgotten or erased meanwhile are left out."""
    sql = transaction.sql
    row = versions.get(sql, version)
    if row is None:
        raise ValueError(f"there is no version {version}")
    step = sql.execute(
        "SELECT id FROM steps WHERE scope = ? AND number = ?", (version.scope, version.number)
    ).fetchone()
    became = {
        turn: lessons.give_back(
            transaction, turn, version.scope, str(step[0]), most=refusal.most, is_counted=refusal.is_counted
        )
        for turn in (row.turns if step is not None else ())
    }
    found = ReturnedSamples(
        tuple(turn for turn, is_back in became.items() if is_back),
        tuple(turn for turn, is_back in became.items() if is_back is False),
    )
    metrics = refusal.metrics | {GIVEN_BACK: float(len(found.waiting) + len(found.given_up))}
    versions.decide(transaction, version, VersionStatus.REFUSED, refusal.why, metrics)
    return found
