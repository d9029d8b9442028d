"""Hints of corrections that their user did not mean, and what is still to be undone because of them.

So a program that is killed between the first and the last thing to undo goes on with it.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from openclaw_rl.core.message import Json
from openclaw_rl.errors import DamageError
from openclaw_rl.store import codec
from openclaw_rl.store.codec import listed, plain
from openclaw_rl.store.threads import Reader, Writer

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Undoing:
    """How a correction is undone: what is said of its user where a version is taken back, None if its version stays.

    Versions that learned `against`, too, are taken back with it.
    """

    why: str | None
    against: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unmeant:
    """The hints of one corrected turn that its user did not mean.

    `since` is the turn whose correction replaced them; None if an accepted reply shows that they were misheard.
    `undoing` is None if nothing is left to undo.
    """

    turn: str
    hints: frozenset[str]
    since: str | None = None
    undoing: Undoing | None = None


class UnmeantBook:
    """Every method that changes something returns once it is committed. A forgotten turn takes its row along."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    async def add(self, found: Unmeant) -> bool:
        """Adds these hints to those of the turn that are known; False if there is no such turn any more."""
        return await self._writer.do(lambda tx: add(tx.sql, found))

    async def undone(self, turn: str) -> None:
        """Nothing is left to undo because of this turn."""
        await self._writer.do(lambda tx: undone(tx.sql, turn))

    async def to_undo(self) -> list[Unmeant]:
        """Those because of which something is still to be undone."""
        return await self._reader.do(to_undo)

    async def of_turn(self, turn: str) -> Unmeant | None:
        """What is known of one turn."""
        return await self._reader.do(lambda sql: of_turn(sql, turn))

    async def replaced(self, user: str, *, limit: int) -> list[Unmeant]:
        """The latest hints that a user's own corrections replaced, newest first."""
        return await self._reader.do(lambda sql: replaced(sql, user, limit))


def add(sql: sqlite3.Connection, found: Unmeant) -> bool:
    """As `UnmeantBook.add`."""
    row = sql.execute("SELECT user FROM turns WHERE id = ?", (plain(found.turn),)).fetchone()
    if row is None:
        return False
    known = of_turn(sql, found.turn) or Unmeant(found.turn, frozenset())
    since, undoing = found.since or known.since, found.undoing or known.undoing
    hints: list[Json] = [*sorted(found.hints | known.hints)]
    held: Json = None if undoing is None else [undoing.why, [*undoing.against]]
    sql.execute(
        "INSERT INTO unmeant (turn, user, hints, since, undoing) VALUES (?, ?, ?, ?, ?) ON CONFLICT (turn) "
        "DO UPDATE SET hints = excluded.hints, since = excluded.since, undoing = excluded.undoing",
        (
            plain(found.turn),
            str(row[0]),
            codec.pack_json(hints),
            None if since is None else plain(since),
            None if held is None else codec.pack_json(held),
        ),
    )
    return True


def undone(sql: sqlite3.Connection, turn: str) -> None:
    """As `UnmeantBook.undone`."""
    sql.execute("UPDATE unmeant SET undoing = NULL WHERE turn = ?", (plain(turn),))


def of_turn(sql: sqlite3.Connection, turn: str) -> Unmeant | None:
    """As `UnmeantBook.of_turn`."""
    return next(iter(_read(sql, "WHERE turn = ?", (plain(turn),))), None)


def to_undo(sql: sqlite3.Connection) -> list[Unmeant]:
    """As `UnmeantBook.to_undo`."""
    return _read(sql, "WHERE undoing IS NOT NULL", ())


def replaced(sql: sqlite3.Connection, user: str, limit: int) -> list[Unmeant]:
    """As `UnmeantBook.replaced`."""
    return _read(sql, "WHERE since IS NOT NULL AND user = ? ORDER BY seq DESC LIMIT ?", (plain(user), limit))


def _read(sql: sqlite3.Connection, rest: str, values: Sequence[str | int]) -> list[Unmeant]:
    """The sound ones among these rows: learning does not stop because one is damaged."""
    found = []
    for turn, *columns in sql.execute(f"SELECT turn, hints, since, undoing FROM unmeant {rest}", values).fetchall():
        try:
            found.append(unmeant_of(str(turn), *columns))
        except DamageError as problem:
            log.error("left out what was not meant of turn=%s: %s", turn, problem)
    return found


def unmeant_of(turn: str, hints: bytes, since: str | None, undoing: bytes | None) -> Unmeant:
    """What a row's columns say. Raises DamageError."""
    with codec.reading(f"what was not meant of turn {turn}"):
        texts = frozenset(str(text) for text in listed(codec.unpack_json(bytes(hints))))
        left = None if undoing is None else _undoing(codec.unpack_json(bytes(undoing)))
        return Unmeant(turn, texts, since, left)


def _undoing(held: Json) -> Undoing:
    why, against = listed(held)
    return Undoing(None if why is None else str(why), tuple(str(text) for text in listed(against)))
