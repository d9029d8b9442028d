"""The judge's calls of each day, so that a restart does not reset a daily limit."""

from __future__ import annotations

import sqlite3

KEPT_DAYS = 32


def spend(sql: sqlite3.Connection, day: int, limit: int) -> bool:
    """Counts one more call on this day; False if the limit is used up. Old days are deleted."""
    if calls_on(sql, day) >= limit:
        return False
    sql.execute("DELETE FROM judge_calls WHERE day < ?", (day - KEPT_DAYS,))
    sql.execute(
        "INSERT INTO judge_calls (day, calls) VALUES (?, 1) ON CONFLICT (day) DO UPDATE SET calls = calls + 1", (day,)
    )
    return True


def calls_on(sql: sqlite3.Connection, day: int) -> int:
    """The calls of this day."""
    row = sql.execute("SELECT calls FROM judge_calls WHERE day = ?", (day,)).fetchone()
    return 0 if row is None else int(row[0])
