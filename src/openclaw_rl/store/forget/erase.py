"""Erasing: the rows in one transaction, and then every byte of them that is still in the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable
from pathlib import Path

from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.store import codec
from openclaw_rl.store.codec import plain
from openclaw_rl.store.connection import open_writer
from openclaw_rl.store.forget.selection import ForgetSelection
from openclaw_rl.store.rows import VersionRow, VersionStatus
from openclaw_rl.store.tables import episodes, samples, versions

WHY_GONE = "removed: it had learned from what was forgotten"
WHY_BACK = "what later versions had learned from was forgotten"
LOG_WAITS_MS, BUSY_MS = 50, 5000
AT_ONCE = 200  # turns in one transaction: storing a turn must not wait long
_SETTLED = (State.TRAINED.value, State.DROPPED.value)
# An open session keeps all of its turns: the next request may continue from any of them.
_OLD = (
    "SELECT turns.id FROM turns LEFT JOIN sessions ON sessions.id = turns.session WHERE at_s < ? "
    "AND (state IS NULL OR state IN (?, ?)) AND (sessions.id IS NULL OR sessions.end_why IS NOT NULL) "
    "ORDER BY seq LIMIT ?"
)
TABLES_OF_TURNS = ("next_states", "verdicts", "feedback", "overrules", "samples", "lessons", "unmeant")


def erase(sql: sqlite3.Connection, what: ForgetSelection) -> None:
    """Deletes the rows and stops serving the versions that learned from them; in the caller's transaction.

    A step that made such a version stays as a row without content. Its scope is served the nearest ancestor that
    learned from none of it.
    """
    texts = _texts_of(sql, what.turns)
    _delete(sql, "hints", "id", what.hints)
    for turn in (*what.unsaid, *what.unread):
        _unteach(sql, turn, is_answered=turn not in what.unsaid)
    for turn in what.thinned:
        samples.thin(sql, turn, what.turns, what.words)
    _delete(sql, "unmeant", "since", (*what.turns, *what.unsaid))  # with what these say against other hints
    _delete(sql, "turns", "id", what.turns)  # and dependent rows
    _delete(sql, "sessions", "id", what.sessions)
    _delete(sql, "episodes", "id", what.episodes)
    _drop_texts(sql, texts)
    _take_back(sql, what)
    if what.scope is not None:
        for table in ("versions", "steps", "lessons", "current", "pins"):
            sql.execute(f"DELETE FROM {table} WHERE scope = ?", (what.scope,))


def erase_turns(sql: sqlite3.Connection, names: Collection[str]) -> None:
    """Deletes these turns with their dependent rows, and the long texts that no other turn names."""
    texts = _texts_of(sql, names)
    _delete(sql, "turns", "id", names)
    _drop_texts(sql, texts)


def erase_older(sql: sqlite3.Connection, before_s: float) -> int:
    """Erases some turns of ended sessions that are older than allowed; returns how many.

    What was learned from them stays learned. A turn is erased with its next state, verdict, feedback and sample, and a
    session or a settled episode when nothing of it is left. A turn that waits for training is kept until then. Hints
    kept for users stay, without the turn they came from. Deleted bytes are overwritten in the file.
    """
    names = [str(row[0]) for row in sql.execute(_OLD, (before_s, *_SETTLED, AT_ONCE))]
    sql.execute("PRAGMA secure_delete=ON")
    if not names:
        episodes.drop_empty(sql, before_s)
        return 0
    sql.executemany("UPDATE hints SET turn = NULL WHERE turn = ?", [(name,) for name in names])
    erase_turns(sql, names)
    sql.execute(
        "DELETE FROM sessions WHERE end_why IS NOT NULL AND seen_s < ? "
        "AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.session = sessions.id)",
        (before_s,),
    )
    return len(names)


def nearest_clean(rows: Iterable[VersionRow], version: PolicyVersion, gone: Collection[PolicyVersion]) -> PolicyVersion:
    """The version itself, or its nearest ancestor that can be served and is not removed.

    One without weights cannot be served until they are made again, which happens before anything is made from it.
    """
    by_version = {row.version: row for row in rows}
    found = version
    while not found.is_base:
        row = by_version.get(found)
        if row is None:
            break
        if found not in gone and row.status is VersionStatus.LIVE and row.pruned_s is None:
            return found
        if row.parent is None:
            break
        found = row.parent
    return PolicyVersion(version.scope, 0)


def compact(path: Path) -> None:
    """Rewrites the file, so that neither it nor its log contains a byte of an erased row. Blocks.

    No other connection may be open.
    """
    sql = open_writer(path)
    try:
        rewrite(sql)
        empty_log(sql)
    finally:
        sql.close()


def rewrite(sql: sqlite3.Connection) -> None:
    """Writes all present rows into the file again. Its log still contains the earlier bytes."""
    empty_log(sql)
    sql.execute("PRAGMA secure_delete=ON")
    sql.execute("VACUUM")


def empty_log(sql: sqlite3.Connection) -> bool:
    """Moves the log into the file and truncates it; False if an earlier state is being read now."""
    sql.execute(f"PRAGMA busy_timeout={LOG_WAITS_MS}")  # other writers wait for this
    try:
        return not sql.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    finally:
        sql.execute(f"PRAGMA busy_timeout={BUSY_MS}")
        sql.execute("PRAGMA shrink_memory")  # frees cached pages too


def _move_pins(sql: sqlite3.Connection, rows: list[VersionRow], gone: Collection[PolicyVersion]) -> None:
    """Moves pins on removed versions to their nearest ancestors, also where training continues from one."""
    for scope, number, ahead in sql.execute("SELECT scope, number, ahead FROM pins").fetchall():
        pinned, head = (PolicyVersion(str(scope), int(each)) for each in (number, number if ahead is None else ahead))
        pinned, head = (nearest_clean(rows, each, gone) if each in gone else each for each in (pinned, head))
        sql.execute(
            "UPDATE pins SET number = ?, ahead = ? WHERE scope = ?",
            (pinned.number, None if head == pinned else head.number, scope),
        )


def _unteach(sql: sqlite3.Connection, turn: str, *, is_answered: bool) -> None:
    """Removes a kept turn's sample and, unless it stays answered, its next state, verdicts and feedback."""
    for table in ("samples", "lessons") if is_answered else TABLES_OF_TURNS:
        sql.execute(f"DELETE FROM {table} WHERE turn = ?", (plain(turn),))
    sql.execute(
        "UPDATE turns SET state = ?, reason = ?, step = NULL WHERE id = ? AND kind = 'main'",
        (State.DROPPED.value, DropReason.FORGOTTEN.value, plain(turn)),
    )


def _delete(sql: sqlite3.Connection, table: str, column: str, names: Iterable[str]) -> None:
    sql.executemany(f"DELETE FROM {table} WHERE {column} = ?", [(plain(name),) for name in names])


def _texts_of(sql: sqlite3.Connection, names: Iterable[str]) -> set[bytes]:
    found: set[bytes] = set()
    for name in names:
        row = sql.execute("SELECT texts FROM turns JOIN bodies USING (seq) WHERE id = ?", (plain(name),)).fetchone()
        found.update(_digests(row[0]) if row is not None else ())
    return found


def _drop_texts(sql: sqlite3.Connection, candidates: set[bytes]) -> None:
    """Deletes long texts that no turn names any more."""
    for (held,) in sql.execute("SELECT texts FROM bodies") if candidates else ():
        candidates.difference_update(_digests(held))
    sql.executemany("DELETE FROM texts WHERE digest = ?", [(digest,) for digest in candidates])


def _digests(held: bytes) -> list[bytes]:
    return [bytes(held[at : at + 16]) for at in range(0, len(held), 16)]


def _take_back(sql: sqlite3.Connection, what: ForgetSelection) -> None:
    rows = versions.everything(sql)
    gone = {row.version for row in what.versions}
    for scope, number in sql.execute("SELECT scope, number FROM current").fetchall():
        served = PolicyVersion(str(scope), int(number))
        clean = nearest_clean(rows, served, gone) if served in gone else served
        if clean != served:
            versions.set_current(sql, clean, WHY_BACK)
    _move_pins(sql, rows, gone)
    for version in gone:
        named = (version.scope, version.number)
        sql.execute(
            "UPDATE versions SET status = ?, why = ?, turns = ?, rehearsed = NULL, metrics = '{}', "
            "pruned_s = NULL WHERE scope = ? AND number = ?",
            (VersionStatus.REFUSED.value, WHY_GONE, codec.pack_json([]), *named),
        )
        sql.execute("UPDATE steps SET metrics = '{}' WHERE scope = ? AND number = ?", named)
