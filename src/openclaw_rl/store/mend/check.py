"""Whether a store is consistent, row by row, and what can be repaired: `openclaw-rl check`.

Nothing is guessed. A turn that lacks what its state needs returns to the state that makes it; a turn whose own text is
lost is dropped as `damaged`.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from openclaw_rl.core.episode import EpisodeStep
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.errors import StoreError
from openclaw_rl.store import codec
from openclaw_rl.store.codec import damaged
from openclaw_rl.store.connection import in_plain_words
from openclaw_rl.store.mend.salvage import drop_parentless
from openclaw_rl.store.rows import VersionRow
from openclaw_rl.store.tables import episodes, hints, ledger, samples, turns, unmeant, versions

MOST_SAID = 20  # messages of SQLite's own check
LOST_STEP = "lost"  # the name of a step whose name is lost
ENDED = (State.TRAINED, State.DROPPED)
_LEFT = (
    "SELECT turn FROM episode_steps JOIN turns ON turns.id = turn "
    "WHERE episode = ? AND state IN ('served', 'paired', 'judged')"
)
Mend = Callable[[], object]


@dataclass(frozen=True, slots=True)
class StoreFinding:
    """A fault in the store. `mend` is what `--repair` does about it; empty if it cannot be repaired."""

    what: str
    mend: str = ""
    is_mended: bool = False


@dataclass(frozen=True, slots=True)
class _Fault:
    """A finding before it is decided whether it is repaired."""

    what: str
    mend: str = ""
    work: Mend | None = None


def check_rows(sql: sqlite3.Connection, *, repair: bool) -> list[StoreFinding]:
    """All faults of an open store; with `repair` those that can be repaired are, in one transaction."""
    found: list[StoreFinding] = []
    sql.execute("BEGIN IMMEDIATE" if repair else "BEGIN")
    try:
        for check in (_pages, _texts, _turns, _sessions, _lessons, _steps, _episodes, _versions, _hints):
            for fault in list(check(sql)):
                if repair and fault.work is not None:
                    fault.work()
                found.append(StoreFinding(fault.what, fault.mend, repair and fault.work is not None))
        sql.execute("COMMIT")
    except (sqlite3.Error, UnicodeDecodeError) as problem:
        raise in_plain_words(problem) from problem
    finally:
        if sql.in_transaction:
            sql.execute("ROLLBACK")
    return found


def _pages(sql: sqlite3.Connection) -> Iterator[_Fault]:
    """What SQLite's check finds. An index that disagrees with its table is made again from the table.

    Raises DamageError for anything else: then only copying the readable rows into a new file helps.
    """
    said = [str(row[0]) for row in sql.execute(f"PRAGMA integrity_check({MOST_SAID})")]
    for line in said if said != ["ok"] else []:
        if "from index" not in line and "entries in index" not in line:
            raise damaged(line, None)
        yield _Fault(f"store.db: {line}", "make the indexes again", lambda: _run(sql, "REINDEX"))
    orphans = Counter((str(table), str(parent)) for table, _, parent, _ in sql.execute("PRAGMA foreign_key_check"))
    for (table, parent), count in orphans.items():
        what = f"{count} rows of {table} belong to no row of {parent}"
        yield _Fault(what, "remove them", partial(drop_parentless, sql, table))


def _texts(sql: sqlite3.Connection) -> Iterator[_Fault]:
    """Long texts stored under a wrong digest; `_turns` finds the turns that name them."""
    for digest, body in sql.execute("SELECT digest, body FROM texts").fetchall():
        try:
            is_whole = hashlib.blake2b(codec.unpack(bytes(body)), digest_size=16).digest() == digest
        except (StoreError, TypeError):
            is_whole = False
        if not is_whole:
            work = _running(sql, "DELETE FROM texts WHERE digest = ?", digest)
            yield _Fault(f"the text {_hex(digest)} is not what was written", "remove it", work)


def _turns(sql: sqlite3.Connection) -> Iterator[_Fault]:
    rows = sql.execute("SELECT seq, id, state, session FROM turns ORDER BY seq").fetchall()
    for seq, name, held, session in rows:
        state = None if held is None else State(held)
        problem = _unreadable(lambda name=name: turns.get(sql, name))  # type: ignore[misc]
        if problem is None:
            yield from _needs(sql, name, state, session)
        elif state in ENDED or state is None:
            if sql.execute("SELECT 1 FROM bodies WHERE seq = ?", (seq,)).fetchone() is not None:
                work = _running(sql, "DELETE FROM bodies WHERE seq = ?", seq)
                yield _Fault(f"turn {name} ({held or 'side'}): {problem}", "remove its text; its row stays", work)
        else:
            yield _Fault(f"turn {name} ({held}): {problem}", "drop it as damaged", _dropping(sql, seq, name))


def _needs(sql: sqlite3.Connection, name: str, state: State | None, session: str) -> Iterator[_Fault]:
    """Waiting turns that lack what their state needs; they return to the state that makes it."""
    if state not in (State.PAIRED, State.JUDGED, State.READY):
        return
    has_next = _is_there(lambda: ledger.next_state_of(sql, name))
    has_verdict = _is_there(lambda: ledger.verdict_of(sql, name))
    has_sample = _is_there(lambda: samples.of_turn(sql, name))
    lacks = {
        State.PAIRED: "" if has_next else "next state",
        State.JUDGED: "" if has_next and has_verdict else "next state" if not has_next else "verdict",
        State.READY: "" if has_sample else "sample",
    }[state]
    if not lacks:
        return
    before = State.SERVED if not has_next else State.PAIRED if not has_verdict else State.JUDGED
    if before is State.SERVED and _has_ended(sql, session):
        mend, work = "drop it: it has no next state", _requeueing(sql, name, State.DROPPED)
    else:
        mend, work = f"back to {before}", _requeueing(sql, name, before)
    yield _Fault(f"turn {name} is {state} but lacks its {lacks}", mend, work)


def _sessions(sql: sqlite3.Connection) -> Iterator[_Fault]:
    lost = "SELECT id, session FROM turns WHERE session NOT IN (SELECT id FROM sessions)"
    for name, session in sql.execute(lost).fetchall():
        work = _running(
            sql,
            "INSERT OR IGNORE INTO sessions SELECT session, user, 'default', at_s, at_s, NULL, NULL FROM turns "
            "WHERE id = ?",
            name,
        )
        yield _Fault(f"turn {name} belongs to session {session}, which is not there", "make the session again", work)


def _lessons(sql: sqlite3.Connection) -> Iterator[_Fault]:
    """A READY turn waits for a scope, and no other turn does; no scope learns from a turn in two steps."""
    stuck = (
        "SELECT id, (SELECT max(step) FROM lessons WHERE turn = turns.id) FROM turns WHERE state = 'ready' "
        "AND EXISTS (SELECT 1 FROM lessons WHERE turn = turns.id) "
        "AND NOT EXISTS (SELECT 1 FROM lessons WHERE turn = turns.id AND step IS NULL AND reason IS NULL)"
    )
    for name, step in sql.execute(stuck).fetchall():
        after, reason = ("trained", None) if step else ("dropped", DropReason.NO_SIGNAL.value)
        work = _running(sql, "UPDATE turns SET state = ?, reason = ?, step = ? WHERE id = ?", after, reason, step, name)
        yield _Fault(f"turn {name} is ready but waits for no scope", f"mark it {after}", work)
    none = "SELECT id FROM turns WHERE state = 'ready' AND NOT EXISTS (SELECT 1 FROM lessons WHERE turn = turns.id)"
    for (name,) in sql.execute(none).fetchall():
        what = f"turn {name} is ready but belongs to no scope"
        yield _Fault(what, "back to judged", _requeueing(sql, name, State.JUDGED))
    over = (
        "SELECT turn, lessons.scope FROM lessons JOIN turns ON turns.id = lessons.turn "
        "WHERE lessons.step IS NULL AND lessons.reason IS NULL AND state <> 'ready'"
    )
    for name, scope in sql.execute(over).fetchall():
        work = _running(sql, "DELETE FROM lessons WHERE turn = ? AND scope = ?", name, scope)
        yield _Fault(f"scope {scope} waits for turn {name}, which is not ready", "let it wait no more", work)


def _steps(sql: sqlite3.Connection) -> Iterator[_Fault]:
    """Turns trained by a missing step, or by two."""
    for name, step in sql.execute(
        "SELECT id, step FROM turns WHERE state = 'trained' AND (step IS NULL OR step NOT IN (SELECT id FROM steps))"
    ).fetchall():
        what = f"turn {name} is trained by step {step}, which is not there"
        yield _Fault(what, "note a step of that name, so that the turn is not trained again", _naming(sql, name, step))
    seen: dict[tuple[str, str], str] = {}
    for row in _readable_versions(sql):
        for turn in () if row.has_given_back else row.turns:
            before = seen.setdefault((row.version.scope, turn), str(row.version))
            if before != str(row.version):
                yield _Fault(f"turn {turn} was trained twice: for {before} and for {row.version}")


def _episodes(sql: sqlite3.Connection) -> Iterator[_Fault]:
    """Episodes that cannot be read, and turns that wait for a missing one."""
    for name, state in sql.execute("SELECT id, state FROM episodes ORDER BY seq").fetchall():
        problem = _unreadable(lambda name=name: episodes.get(sql, name))  # type: ignore[misc]
        left = [turn for (turn,) in sql.execute(_LEFT, (name,))]
        if problem is not None:
            what = f"episode {name}: {problem}"
            yield _Fault(what, "remove it, its turns dropped as damaged", _giving_up(sql, name, left))
        elif state == "settled" and left:
            what = f"episode {name} is settled, but turn {left[0]} of it waits"
            back = _running(sql, "UPDATE episodes SET state = 'ended' WHERE id = ?", name)
            yield _Fault(what, "settle it again", back)
    lost = "SELECT seq, id FROM turns WHERE state IN ('served', 'paired', 'judged') ORDER BY seq"
    for seq, name in sql.execute(lost).fetchall():
        step = _step_of(sql, name)
        has_row = sql.execute("SELECT 1 FROM episode_steps WHERE turn = ?", (name,)).fetchone() is not None
        if step is not None and not has_row:
            what = f"turn {name} is a step of episode {step.episode}, which is not there"
            yield _Fault(what, "drop it as damaged", _dropping(sql, seq, name))


def _step_of(sql: sqlite3.Connection, name: str) -> EpisodeStep | None:
    """The step of a turn; None if it has no episode or cannot be read, which another check finds."""
    try:
        turn = turns.get(sql, name)
    except StoreError:
        return None
    return None if turn is None else turn.step


def _giving_up(sql: sqlite3.Connection, name: str, left: Sequence[str]) -> Mend:
    def work() -> None:
        for turn in left:
            seq = sql.execute("SELECT seq FROM turns WHERE id = ?", (turn,)).fetchone()[0]
            _dropping(sql, seq, turn)()
        sql.execute("DELETE FROM episode_steps WHERE episode = ?", (name,))
        sql.execute("DELETE FROM episodes WHERE id = ?", (name,))

    return work


def _versions(sql: sqlite3.Connection) -> Iterator[_Fault]:
    for scope, number in sql.execute("SELECT scope, number FROM versions").fetchall():
        problem = _unreadable(lambda scope=scope, number=number: versions.find(sql, scope, number))  # type: ignore[misc]
        if problem is not None:
            work = _running(sql, "DELETE FROM versions WHERE scope = ? AND number = ?", scope, number)
            yield _Fault(f"version {scope}.{number}: {problem}", "make its row again from its folder", work)


def _hints(sql: sqlite3.Connection) -> Iterator[_Fault]:
    for (name,) in sql.execute("SELECT id FROM hints").fetchall():
        problem = _unreadable(lambda name=name: hints.get(sql, name))  # type: ignore[misc]
        if problem is not None:
            yield _Fault(f"hint {name}: {problem}", "forget it", _running(sql, "DELETE FROM hints WHERE id = ?", name))
    for turn, *columns in sql.execute("SELECT turn, hints, since, undoing FROM unmeant").fetchall():
        problem = _unreadable(lambda turn=turn, columns=columns: unmeant.unmeant_of(turn, *columns))  # type: ignore[misc]
        if problem is not None:
            forgets = _running(sql, "DELETE FROM unmeant WHERE turn = ?", turn)
            yield _Fault(f"what was not meant of turn {turn}: {problem}", "forget it", forgets)


def _readable_versions(sql: sqlite3.Connection) -> list[VersionRow]:
    found = []
    for scope, number in sql.execute("SELECT scope, number FROM versions ORDER BY seq").fetchall():
        try:
            row = versions.find(sql, scope, number)
        except StoreError:
            continue
        if row is not None:
            found.append(row)
    return found


def _unreadable(read: Callable[[], object]) -> str | None:
    """Why it cannot be read; None if it can."""
    try:
        return None if read() is not None else "its rows are missing"
    except StoreError as problem:
        return problem.problem


def _is_there(read: Callable[[], object]) -> bool:
    return _unreadable(read) is None


def _has_ended(sql: sqlite3.Connection, session: str) -> bool:
    row = sql.execute("SELECT end_why FROM sessions WHERE id = ?", (session,)).fetchone()
    return row is not None and row[0] is not None


def _requeueing(sql: sqlite3.Connection, name: str, state: State) -> Mend:
    """Returns a turn to a state, without the rows that later states made."""
    tables = {
        State.DROPPED: ("next_states", "verdicts", "samples", "lessons"),
        State.SERVED: ("next_states", "verdicts", "samples", "lessons"),
        State.PAIRED: ("verdicts", "samples", "lessons"),
        State.JUDGED: ("samples", "lessons"),
    }[state]
    reason = DropReason.NO_NEXT_STATE.value if state is State.DROPPED else None

    def work() -> None:
        for table in tables:
            sql.execute(f"DELETE FROM {table} WHERE turn = ?", (name,))
        sql.execute("UPDATE turns SET state = ?, reason = ?, step = NULL WHERE id = ?", (state.value, reason, name))

    return work


def _dropping(sql: sqlite3.Connection, seq: int, name: str) -> Mend:
    def work() -> None:
        for table in ("next_states", "verdicts", "samples", "lessons"):
            sql.execute(f"DELETE FROM {table} WHERE turn = ?", (name,))
        sql.execute("DELETE FROM bodies WHERE seq = ?", (seq,))
        dropped = (State.DROPPED.value, DropReason.DAMAGED.value, seq)
        sql.execute("UPDATE turns SET state = ?, reason = ? WHERE seq = ?", dropped)

    return work


def _naming(sql: sqlite3.Connection, turn: str, step: str | None) -> Mend:
    def work() -> None:
        name = step or LOST_STEP
        sql.execute("INSERT OR IGNORE INTO steps VALUES (?, 0, 0, NULL, NULL, '{}')", (name,))
        sql.execute("UPDATE turns SET step = ? WHERE id = ?", (name, turn))

    return work


def _running(sql: sqlite3.Connection, statement: str, *values: object) -> Mend:
    return lambda: _run(sql, statement, *values)


def _run(sql: sqlite3.Connection, statement: str, *values: object) -> None:
    sql.execute(statement, values)


def _hex(digest: object) -> str:
    return digest.hex() if isinstance(digest, bytes) else str(digest)
