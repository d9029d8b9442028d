"""How a session stands that a request belongs to without going on from anything in it."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from openclaw_rl.core.turn import Turn
from openclaw_rl.store.codec import plain
from openclaw_rl.store.tables import turns


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """`asked` is the newest turn that was asked the same, `waiting` are those without a next state, newest first,
    `before` the open sessions whose names are the family's, alone or with another number behind it.
    """

    asked: str | None
    waiting: tuple[Turn, ...]
    before: tuple[str, ...]


def standing(sql: sqlite3.Connection, session: str, prefix: str, family: str | None, limit: int) -> SessionStatus:
    """How the session stands, its family's other sessions included."""
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
    """The open sessions called `name`, alone or with a number below this session's behind it."""
    rows = sql.execute(
        # a semicolon follows a colon in the order of letters
        "SELECT id FROM sessions WHERE (id = ? OR (id > ? AND id < ?)) AND id <> ? AND end_why IS NULL",
        (name, f"{name}:", f"{name};", session),
    )
    mine = _number(name, session)
    found = [(str(row[0]), _number(name, str(row[0]))) for row in rows]
    return tuple(each for each, number in found if number is not None and (not mine or number < mine))


def _number(name: str, session: str) -> int | None:
    """The number behind the name, counted from 1; 0 for the name alone, None for anything else."""
    rest = session[len(name) + 1 :]
    return 0 if session == name else int(rest) + 1 if rest.isdecimal() and len(rest) < 18 else None
