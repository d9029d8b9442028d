"""What each sample trains: one lesson for each of its scopes, and how settling them moves its turn.

A turn is READY while any scope waits for it. When none does, it is TRAINED if at least one scope has learned from it,
and DROPPED with the last reason if none has.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from openclaw_rl.core.ledger import TAKEN_BACK, DropReason, State
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.store.codec import metrics_of, plain
from openclaw_rl.store.rows import GIVEN_BACK, VersionStatus
from openclaw_rl.store.tables import versions
from openclaw_rl.store.tables.ledger import move, state_of
from openclaw_rl.store.threads import Reader, Transaction, Writer

WAITING = "step IS NULL AND reason IS NULL"


def enter(sql: sqlite3.Connection, turn: str, scopes: Sequence[str]) -> None:
    """Enters the lessons of a sample, one for each scope."""
    if not scopes:
        raise ValueError(f"the sample of turn {turn} trains no scope")
    rows = [(plain(turn), plain(scope)) for scope in scopes]
    sql.executemany("INSERT INTO lessons (turn, scope) VALUES (?, ?)", rows)


def train(transaction: Transaction, turn: str, scope: str, step: str) -> None:
    """A scope has learned from the sample. Raises ValueError if it does not wait for it: no sample trains it twice."""
    done = transaction.sql.execute(
        f"UPDATE lessons SET step = ? WHERE turn = ? AND scope = ? AND {WAITING}", (step, plain(turn), plain(scope))
    )
    if done.rowcount != 1:
        raise ValueError(f"turn {turn} does not wait to train scope {scope}")
    transaction.sql.execute("UPDATE turns SET step = ? WHERE id = ?", (step, plain(turn)))
    _settle(transaction, turn, None)


def drop(transaction: Transaction, turn: str, reason: DropReason, *, scope: str | None = None) -> bool:
    """The turn teaches nothing more, or nothing to this scope; False if that was so already.

    Also False for a side turn, which has no state.
    """
    state = state_of(transaction.sql, turn)
    if state in (State.TRAINED, State.DROPPED, None):
        return False
    if state is not State.READY:
        move(transaction, turn, State.DROPPED, reason)
        return True
    which, values = ("", []) if scope is None else (" AND scope = ?", [plain(scope)])
    done = transaction.sql.execute(
        f"UPDATE lessons SET reason = ? WHERE turn = ? AND {WAITING}{which}", (reason.value, plain(turn), *values)
    )
    if done.rowcount == 0:
        return False
    _settle(transaction, turn, reason)
    return True


def give_back(
    transaction: Transaction, turn: str, scope: str, step: str, *, most: int, is_counted: bool
) -> bool | None:
    """Makes a sample that a step consumed without effect wait for the scope again; True if it does.

    False if it was given up, after this many times. None if the scope did not learn it in this step, or it is gone. A
    rehearsal sample is not a correction that cannot be learned: it is given up as without signal.
    """
    sql = transaction.sql
    row = sql.execute(
        "SELECT returned, kind IS NOT NULL FROM lessons JOIN samples ON samples.turn = lessons.turn "
        "WHERE lessons.turn = ? AND scope = ? AND step = ?",
        (plain(turn), plain(scope), step),
    ).fetchone()
    if row is None:
        return None
    returned, is_rehearsal = int(row[0]), bool(row[1])
    is_back = returned < most or not is_counted
    reason = None if is_back else DropReason.NO_SIGNAL if is_rehearsal else DropReason.NOT_LEARNABLE
    sql.execute(
        "UPDATE lessons SET step = NULL, reason = ?, returned = ? WHERE turn = ? AND scope = ?",
        (None if reason is None else reason.value, returned + is_counted, plain(turn), plain(scope)),
    )
    sql.execute(
        "UPDATE turns SET step = (SELECT step FROM lessons WHERE turn = turns.id AND step IS NOT NULL LIMIT 1) "
        "WHERE id = ?",
        (plain(turn),),
    )
    if state_of(sql, turn) is State.TRAINED and is_back:
        move(transaction, turn, State.READY, is_refused=True)
    elif not is_back:
        _settle(transaction, turn, reason, is_refused=True)
    return is_back


def returned(sql: sqlite3.Connection, scope: str) -> dict[str, int]:
    """The waiting samples of this scope that refused versions returned, and how often."""
    rows = sql.execute(
        f"SELECT turn, returned FROM lessons WHERE scope = ? AND {WAITING} AND returned > 0", (plain(scope),)
    )
    return {str(turn): int(many) for turn, many in rows}


def all_wait(sql: sqlite3.Connection, turns: Sequence[str], scope: str) -> bool:
    """Whether the scope has yet to learn from every one of these turns."""
    asked = f"SELECT 1 FROM lessons WHERE turn = ? AND scope = ? AND {WAITING}"
    return all(sql.execute(asked, (plain(turn), plain(scope))).fetchone() is not None for turn in turns)


def waiting_scopes(sql: sqlite3.Connection) -> list[str]:
    """The scopes that samples wait for, the one with the oldest sample first."""
    rows = sql.execute(
        "SELECT scope, min(samples.seq) AS oldest FROM lessons JOIN samples ON samples.turn = lessons.turn "
        f"WHERE {WAITING} GROUP BY scope ORDER BY oldest"
    )
    return [str(row[0]) for row in rows]


def _settle(transaction: Transaction, turn: str, reason: DropReason | None, *, is_refused: bool = False) -> None:
    waiting, trained = transaction.sql.execute(
        f"SELECT coalesce(sum({WAITING}), 0), coalesce(sum(step IS NOT NULL), 0) FROM lessons WHERE turn = ?",
        (plain(turn),),
    ).fetchone()
    was_trained = state_of(transaction.sql, turn) is State.TRAINED
    if waiting:
        return
    if not trained:
        move(transaction, turn, State.DROPPED, reason, is_refused=is_refused)
    elif not was_trained:
        move(transaction, turn, State.TRAINED)


class RefusalBook:
    """Refuses versions, and reports the samples that they returned."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    async def refuse(self, version: PolicyVersion, refusal: Refusal) -> ReturnedSamples:
        """REFUSED, and the samples of its step wait again or are given up; synced to disk."""
        return await self._writer.do(lambda tx: refuse(tx, version, refusal), is_synced=True)

    async def returned(self, scope: str) -> dict[str, int]:
        """The waiting samples of this scope that refused versions returned, and how often each."""
        return await self._reader.do(lambda sql: returned(sql, scope))


class StepBook:
    """The committed steps; their metrics show how long steps take, also after a restart."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    async def newest(self, most: int) -> list[dict[str, float]]:
        """The metrics of the newest steps, taken or given up, oldest first."""

        def read(sql: sqlite3.Connection) -> list[dict[str, float]]:
            rows = sql.execute("SELECT metrics FROM steps ORDER BY ended_s DESC LIMIT ?", (most,)).fetchall()
            return [metrics_of(str(row[0])) for row in reversed(rows)]

        return await self._reader.do(read)

    async def take_back(self, reason: DropReason) -> list[str]:
        """Makes the samples that were dropped with this reason wait for a step again; returns their turns.

        Only those from which nothing was learned. Raises ValueError for a reason that is final.
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


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a version is refused, and with which measurements.

    Its samples are returned up to `most` times. If that is not `is_counted`, the version was refused for a reason other
    than what it learned.
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
    """REFUSED with the reason. Turns that were forgotten or erased meanwhile are skipped."""
    sql = transaction.sql
    row = versions.get(sql, version)
    if row is None:
        raise ValueError(f"there is no version {version}")
    step = sql.execute(
        "SELECT id FROM steps WHERE scope = ? AND number = ?", (version.scope, version.number)
    ).fetchone()
    became = {
        turn: give_back(
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
