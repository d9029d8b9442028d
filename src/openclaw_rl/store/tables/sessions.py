"""Sessions as rows, and the moves of their turns when they end."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.turn import Session, Turn
from openclaw_rl.store import codec
from openclaw_rl.store.codec import plain
from openclaw_rl.store.tables import ledger, turns
from openclaw_rl.store.threads import Transaction

COLUMNS = "sessions.id, sessions.user, sessions.agent, sessions.started_s, sessions.seen_s, sessions.end_why"
THUMBS = {1: "(the user marked this reply as good)", -1: "(the user marked this reply as bad)"}


def see(sql: sqlite3.Connection, session: Session) -> None:
    """Makes the session or records that it was seen again; one that had ended continues."""
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

    A turn with a user's thumb gets it as its next state. A sibling of a continued turn is NOT_FOLLOWED, any other has
    NO_NEXT_STATE. A step of an episode waits for the end of the episode.
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


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """`asked` is the newest turn with the same request, `waiting` are those without a next state, newest first,
    `before` the open sessions whose names are the family's, alone or followed by another number.
    """

    asked: str | None
    waiting: tuple[Turn, ...]
    before: tuple[str, ...]


def standing(sql: sqlite3.Connection, session: str, prefix: str, family: str | None, limit: int) -> SessionStatus:
    """The session's state, its family's other sessions included."""
    same = sql.execute(
        "SELECT id FROM turns WHERE prefix = ? AND session = ? ORDER BY seq DESC LIMIT 1", (prefix, plain(session))
    ).fetchone()
    before = () if family is None else _before(sql, plain(family), plain(session))
    found: list[tuple[int, str]] = []
    for each in (plain(session), *before):
        asked = "SELECT seq, id FROM turns WHERE session = ? AND state = 'served' ORDER BY seq DESC LIMIT ?"
        found += [(int(seq), str(turn)) for seq, turn in sql.execute(asked, (each, limit))]
    waiting = [turns.get(sql, turn) for _, turn in sorted(found, reverse=True)[:limit]]
    return SessionStatus(
        None if same is None else str(same[0]), tuple(turn for turn in waiting if turn is not None), before
    )


def _before(sql: sqlite3.Connection, name: str, session: str) -> tuple[str, ...]:
    """The open sessions called `name`, alone or followed by a number below this session's."""
    rows = sql.execute(
        # a semicolon follows a colon in the order of letters
        "SELECT id FROM sessions WHERE (id = ? OR (id > ? AND id < ?)) AND id <> ? AND end_why IS NULL",
        (name, f"{name}:", f"{name};", session),
    )
    mine = _number(name, session)
    found = [(str(row[0]), _number(name, str(row[0]))) for row in rows]
    return tuple(each for each, number in found if number is not None and (not mine or number < mine))


def _number(name: str, session: str) -> int | None:
    """The number after the name, counted from 1; 0 for the name alone, None for anything else."""
    rest = session[len(name) + 1 :]
    return 0 if session == name else int(rest) + 1 if rest.isdecimal() and len(rest) < 18 else None
