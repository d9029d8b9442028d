"""Erases turns of ended sessions when they are older than is allowed. What was learned from them stays learned.

A turn goes with its next state, verdict, feedback and sample, and a session or a settled episode when nothing of it is
left. A turn that
still waits to teach is kept until it has. Hints kept for users stay, without the turn they were drawn from.
"""

from __future__ import annotations

import sqlite3

from openclaw_rl.core.ledger import State
from openclaw_rl.store.forget.erase import erase_turns
from openclaw_rl.store.tables import episodes

AT_ONCE = 200  # turns in one transaction: nobody who stores a turn waits long
_SETTLED = (State.TRAINED.value, State.DROPPED.value)
# A session that goes on keeps all of its turns: the next request may go on from any of them.
_OLD = (
    "SELECT turns.id FROM turns LEFT JOIN sessions ON sessions.id = turns.session WHERE at_s < ? "
    "AND (state IS NULL OR state IN (?, ?)) AND (sessions.id IS NULL OR sessions.end_why IS NOT NULL) "
    "ORDER BY seq LIMIT ?"
)


def erase_older(sql: sqlite3.Connection, before_s: float) -> int:
    """Erases some of what is older; gives how many turns went. What is deleted is overwritten in the file."""
    names = [str(row[0]) for row in sql.execute(_OLD, (before_s, *_SETTLED, AT_ONCE))]
    if not names:
        sql.execute("PRAGMA secure_delete=ON")
        episodes.drop_empty(sql, before_s)
        return 0
    sql.execute("PRAGMA secure_delete=ON")
    sql.executemany("UPDATE hints SET turn = NULL WHERE turn = ?", [(name,) for name in names])
    erase_turns(sql, names)
    sql.execute(
        "DELETE FROM sessions WHERE end_why IS NOT NULL AND seen_s < ? "
        "AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.session = sessions.id)",
        (before_s,),
    )
    return len(names)
