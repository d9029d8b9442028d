"""What steps reported, and samples that no step was taken for and that may yet wait for one again."""

from __future__ import annotations

import sqlite3

from openclaw_rl.core.ledger import TAKEN_BACK, DropReason, State
from openclaw_rl.store import codec
from openclaw_rl.store.codec import plain
from openclaw_rl.store.reader import Reader
from openclaw_rl.store.writer import Transaction, Writer


class StepBook:
    """Steps outlive the program, and so does what was learned of how long they take."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    async def newest(self, most: int) -> list[dict[str, float]]:
        """The metrics of the newest steps, taken or given up, oldest first."""

        def read(sql: sqlite3.Connection) -> list[dict[str, float]]:
            rows = sql.execute("SELECT metrics FROM steps ORDER BY ended_s DESC LIMIT ?", (most,)).fetchall()
            return [codec.metrics_of(str(row[0])) for row in reversed(rows)]

        return await self._reader.do(read)

    async def take_back(self, reason: DropReason) -> list[str]:
        """Has the samples that were dropped with this reason wait for a step again; returns their turns.

        Only those that nothing was learned from. Raises ValueError for a reason that is final.
        """
        if reason not in TAKEN_BACK:
            raise ValueError(f"what was dropped as {reason} cannot wait for a step again")
        return await self._writer.do(lambda tx: _take_back(tx, reason))


def _take_back(transaction: Transaction, reason: DropReason) -> list[str]:
    sql = transaction.sql
    rows = sql.execute(
        "SELECT id FROM turns WHERE reason = ? AND EXISTS (SELECT 1 FROM samples WHERE samples.turn = turns.id) "
        "AND EXISTS (SELECT 1 FROM lessons WHERE lessons.turn = turns.id AND lessons.reason = ?)",
        (reason.value, reason.value),
    ).fetchall()
    turns = [str(row[0]) for row in rows]
    for turn in turns:
        sql.execute("UPDATE lessons SET reason = NULL WHERE turn = ? AND reason = ?", (plain(turn), reason.value))
        sql.execute("UPDATE turns SET state = ?, reason = NULL WHERE id = ?", (State.READY.value, plain(turn)))
    if turns:
        transaction.moved.add(State.READY)
    return turns
