"""Sessions as rows, and what becomes of their turns when they end."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.turn import Session
from openclaw_rl.store import codec
from openclaw_rl.store.codec import plain
from openclaw_rl.store.tables import ledger
from openclaw_rl.store.writer import Transaction

COLUMNS = "sessions.id, sessions.user, sessions.agent, sessions.started_s, sessions.seen_s, sessions.end_why"
THUMBS = {1: "(the user marked this reply as good)", -1: "(the user marked this reply as bad)"}


def see(sql: sqlite3.Connection, session: Session) -> None:
    """Makes the session or notes that it was seen again; one that had ended goes on."""
    sql.execute(
        "INSERT INTO sessions (id, user, agent, started_s, seen_s, end_why) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (id) DO UPDATE SET seen_s = max(seen_s, excluded.seen_s), end_why = NULL, ended_s = NULL",
        (
            plain(session.id),
            plain(session.user),
            plain(session.agent),
            session.started_s,
            session.seen_s,
            None if session.end_why is None else plain(session.end_why),
        ),
    )


def end(transaction: Transaction, session: str, *, why: str, at_s: float) -> None:
    """The conversation is over: no turn of it stays SERVED, steps of episodes aside.

    A turn the user gave a thumb for keeps it as its next state. A sibling of a turn that was gone on from is
    NOT_FOLLOWED, any other has NO_NEXT_STATE. A step of an episode waits for the end of that.
    """
    sql = transaction.sql
    sql.execute(
        "UPDATE sessions SET end_why = ?, ended_s = ? WHERE id = ? AND end_why IS NULL",
        (plain(why), at_s, plain(session)),
    )
    waiting = sql.execute(
        "SELECT id, prefix, (SELECT score FROM feedback WHERE feedback.turn = turns.id ORDER BY seq DESC LIMIT 1) "
        "FROM turns WHERE session = ? AND state = 'served' "
        "AND NOT EXISTS (SELECT 1 FROM episode_steps WHERE turn = turns.id) ORDER BY seq",
        (plain(session),),
    ).fetchall()
    for turn, prefix, thumb in waiting:
        if thumb in THUMBS:
            said = (message(Role.USER, THUMBS[thumb]),)
            ledger.pair(transaction, NextState(str(turn), said, NextStateSource.USER))
        else:
            reason = DropReason.NOT_FOLLOWED if _has_followed_sibling(sql, turn, prefix) else DropReason.NO_NEXT_STATE
            ledger.move(transaction, str(turn), State.DROPPED, reason)


def open_ones(sql: sqlite3.Connection, seen_before_s: float) -> list[Session]:
    """Sessions not ended and not seen since, longest unseen first."""
    rows = sql.execute(
        f"SELECT {COLUMNS} FROM sessions WHERE end_why IS NULL AND seen_s < ? ORDER BY seen_s", (seen_before_s,)
    )
    return [session_of(row) for row in rows]


def session_of(row: Sequence[object]) -> Session:
    """The session of a row of `COLUMNS`."""
    with codec.reading("a session"):
        name, user, agent, started_s, seen_s, end_why = row
        return Session(
            str(name),
            str(user),
            str(agent),
            codec.real(started_s),
            codec.real(seen_s),
            None if end_why is None else str(end_why),
        )


def _has_followed_sibling(sql: sqlite3.Connection, turn: str, prefix: str) -> bool:
    row = sql.execute(
        "SELECT 1 FROM turns JOIN next_states ON next_states.turn = turns.id "
        "WHERE turns.prefix = ? AND turns.prefix <> '' AND turns.id <> ? "
        "AND turns.session = (SELECT session FROM turns WHERE id = ?) LIMIT 1",
        (prefix, turn, turn),
    ).fetchone()
    return row is not None
