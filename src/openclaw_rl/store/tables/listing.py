"""Turns with all their rows, a page at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.scope import Owner, owner_of
from openclaw_rl.errors import DamageError
from openclaw_rl.store.codec import plain
from openclaw_rl.store.rows import JudgedTurn, TurnRow
from openclaw_rl.store.tables import episodes, ledger, sessions, turns, versions

COLUMNS = (
    "turns.id, turns.state, turns.reason, turns.step, "
    "EXISTS (SELECT 1 FROM samples WHERE samples.turn = turns.id), " + turns.COLUMNS
)
_OTHER = "SELECT 1 FROM turns AS other WHERE other.session = turns.session AND other.state"
_WITH_SAMPLE = f"EXISTS ({_OTHER} IN ('ready', 'trained'))"
_COMPLETE = f"(sessions.end_why IS NOT NULL AND NOT EXISTS ({_OTHER} = 'paired'))"


def row(sql: sqlite3.Connection, turn: str) -> TurnRow | None:
    """The turn with all its rows."""
    found = _page(sql, "WHERE turns.id = ?", [plain(turn)])
    return found[0] if found else None


def newest(
    sql: sqlite3.Connection,
    *,
    limit: int,
    session: str | None,
    state: State | None,
    before: str | None,
    scope: str | None = None,
    are_steps: bool | None = None,
) -> list[TurnRow]:
    """Newest first; `before` is a turn id to page on from. With `scope`, only those of its owner.

    With `are_steps`, only steps of episodes (True) or none of them (False).
    """
    owner, name = (None if scope is None else owner_of(scope)) or (None, None)
    where, values = _where(session=session, state=state, user=name if owner is Owner.USER else None)
    if owner is Owner.AGENT:
        where.append("(SELECT agent FROM sessions WHERE sessions.id = turns.session) = ?")
        values.append(plain(str(name)))
    if before is not None:
        where.append("turns.seq < (SELECT seq FROM turns WHERE id = ?)")
        values.append(plain(before))
    if are_steps is not None:
        where.append(f"{'' if are_steps else 'NOT '}EXISTS (SELECT 1 FROM episode_steps WHERE turn = turns.id)")
    return _page(sql, f"WHERE {' AND '.join(where)} ORDER BY turns.seq DESC LIMIT ?", [*values, limit])


def oldest(
    sql: sqlite3.Connection, *, limit: int, session: str | None, user: str | None, after: str | None
) -> list[TurnRow]:
    """Oldest first; `after` is a turn id to page on from."""
    where, values = _where(session=session, state=None, user=user)
    if after is not None:
        where.append("turns.seq > (SELECT seq FROM turns WHERE id = ?)")
        values.append(plain(after))
    return _page(sql, f"WHERE {' AND '.join(where)} ORDER BY turns.seq LIMIT ?", [*values, limit])


def latest_of(sql: sqlite3.Connection, user: str, limit: int) -> list[TurnRow]:
    """The latest turns of a user, newest first."""
    return _page(sql, "WHERE turns.user = ? ORDER BY turns.seq DESC LIMIT ?", [plain(user), limit])


def last_verdict(sql: sqlite3.Connection, user: str) -> int:
    """The `seq` of the user's newest score; 0 without any."""
    found = sql.execute(
        "SELECT seq FROM verdicts WHERE user = ? AND score IS NOT NULL ORDER BY seq DESC LIMIT 1", (plain(user),)
    ).fetchone()
    return 0 if found is None else int(found[0])


def judged(sql: sqlite3.Connection, limit: int, looked: int) -> tuple[list[JudgedTurn], list[str]]:
    """Turns that wait to be admitted as samples, in the order of judging, and those among them that cannot be read.

    Those judged up to `looked` only if their session has a sample by now, or is over with every turn judged: the others
    were considered and wait for that, which may be thousands. Steps of episodes are left out: they wait for their
    group.
    """
    found, damaged = [], []
    rows = sql.execute(
        "SELECT turns.id, verdicts.seq FROM turns INDEXED BY turns_state "
        "CROSS JOIN verdicts ON verdicts.turn = turns.id CROSS JOIN sessions ON sessions.id = turns.session "
        "WHERE turns.state = 'judged' AND NOT EXISTS (SELECT 1 FROM episode_steps WHERE turn = turns.id) "
        f"AND (verdicts.seq > ? OR {_WITH_SAMPLE} OR {_COMPLETE}) "
        "ORDER BY verdicts.seq LIMIT ?",
        (looked, limit),
    ).fetchall()
    for name, seq in rows:
        try:
            turn, verdict = turns.get(sql, name), ledger.verdict_of(sql, name)
        except DamageError:
            turn = verdict = None
        held = sql.execute(
            f"SELECT {sessions.COLUMNS} FROM sessions JOIN turns ON turns.session = sessions.id WHERE turns.id = ?",
            (name,),
        ).fetchone()
        if turn is None or verdict is None or held is None:
            damaged.append(name)
        else:
            found.append(JudgedTurn(turn, verdict, sessions.session_of(held), int(seq)))
    return found, damaged


def session_has_sample(sql: sqlite3.Connection, session: str) -> bool:
    """Whether any turn of the session is READY or TRAINED."""
    found = sql.execute(
        "SELECT 1 FROM turns WHERE session = ? AND state IN ('ready', 'trained') LIMIT 1", (plain(session),)
    ).fetchone()
    return found is not None


def _where(*, session: str | None, state: State | None, user: str | None) -> tuple[list[str], list[str | int]]:
    where, values = ["1"], list[str | int]()
    for column, value in (("session", session), ("state", state), ("user", user)):
        if value is not None:
            where.append(f"turns.{column} = ?")
            values.append(plain(str(value)))
    return where, values


def _page(sql: sqlite3.Connection, rest: str, values: Sequence[str | int]) -> list[TurnRow]:
    found = sql.execute(f"SELECT {COLUMNS} FROM turns JOIN bodies USING (seq) {rest}", values).fetchall()
    return [_row_of(sql, item) for item in found]


def _row_of(sql: sqlite3.Connection, item: Sequence[object]) -> TurnRow:
    name, state, reason, step, has_sample, *held = item
    turn = turns.turn_of(sql, held)
    attempt = None if turn.step is None else episodes.episode_of(sql, turn.id)
    return TurnRow(
        turn=turn,
        state=None if state is None else State(str(state)),
        reason=None if reason is None else DropReason(str(reason)),
        next_state=ledger.next_state_of(sql, str(name)),
        verdict=ledger.verdict_of(sql, str(name)),
        feedback=ledger.feedback_of(sql, str(name)),
        has_sample=bool(has_sample),
        step=None if step is None else str(step),
        trained_version=None if step is None or state != "trained" else versions.of_step(sql, str(step)),
        episode=None if attempt is None else attempt[0],
        step_score=None if attempt is None else attempt[1].score,
    )
