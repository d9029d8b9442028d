"""The judge's calls of each day, so that a restart does not get around a daily limit."""

from __future__ import annotations

import sqlite3

KEPT_DAYS = 32


def spend(sql: sqlite3.Connection, day: int, limit: int) -> bool:
    """Notes one call more on this day; False where the limit is spent. Days long gone are forgotten."""
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
