"""What was forgotten on request, and the progress of each forgetting."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from openclaw_rl.core.turn import Turn
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import StoreError
from openclaw_rl.store.codec import metrics_text, plain
from openclaw_rl.store.connection import NAME
from openclaw_rl.store.exports import ExportBook
from openclaw_rl.store.forget.erase import empty_log, erase, rewrite
from openclaw_rl.store.forget.selection import ForgetSelection, ForgetTarget, going
from openclaw_rl.store.rows import StepRecord
from openclaw_rl.store.tables import turns, versions
from openclaw_rl.store.tables.hints import HintBook
from openclaw_rl.store.threads import Reader, Transaction, Writer

WHY_GIVEN_UP = "its weights were not kept and could not be made again; it is rebuilt over the samples that are left"
LOOKS = 3  # searches for what to erase while others write, before one during which they wait
LOG_TRIES, LOG_PAUSE_S = 600, 0.1


class Phase(StrEnum):
    """The current work of a forgetting; the rows are erased in every phase."""

    CLEANING = "cleaning"  # folders of versions, and exported records
    COMPACTING = "compacting"  # the store's file
    REBUILDING = "rebuilding"  # versions without it
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Forgetting:
    """One request to forget. `plan` is JSON that the store does not read."""

    id: str
    at_s: float
    phase: Phase
    plan: str


@dataclass(frozen=True, slots=True)
class ForgottenInFlight:
    """A forgetting as applied to requests that were being answered at that time: their turns are not stored."""

    id: str  # of the forgetting
    at_s: float  # when the rows were erased
    turns: frozenset[str]
    sessions: frozenset[str]
    hints: frozenset[str]
    user: str | None

    def holds(self, turn: Turn) -> bool:
        """Whether the turn was requested before the forgetting, and belongs to it."""
        return self.goes_on(turn) or (turn.at_s <= self.at_s and self.is_theirs(turn))

    def goes_on(self, turn: Turn) -> bool:
        """Whether the turn continues a forgotten one, or was answered with a forgotten hint in its prompt."""
        return turn.parent in self.turns or any(item.id in self.hints for item in turn.carried)

    def is_theirs(self, turn: Turn) -> bool:
        """Whether the turn is of the forgotten user, or of a session that lost a turn."""
        return turn.session in self.sessions or turn.user == self.user


@dataclass(frozen=True, slots=True)
class _ForgetPreview:
    """What will be erased, found while others write, and the facts that show whether it is still valid."""

    what: ForgetTarget
    found: ForgetSelection
    last_seq: int
    states: tuple[tuple[object, ...], ...]

    def still_holds(self, sql: sqlite3.Connection, mark: ForgottenInFlight) -> bool:
        """Whether nothing was written since that would change it."""
        newer = turns.since(sql, self.last_seq)
        has_more = any(mark.goes_on(turn) or mark.is_theirs(turn) for turn in newer)
        return not has_more and _states(sql, self.found) == self.states


class ForgettingBook:
    """The forgettings of an installation."""

    def __init__(self, writer: Writer, reader: Reader, hints: HintBook, exports: ExportBook) -> None:
        self._writer = writer
        self._reader = reader
        self._exports = exports
        self._hints = hints
        self._under_way: tuple[ForgottenInFlight, ...] = ()
        self.begun = 0  # forgettings since the store was opened: earlier reads may contain what was erased

    def holds(self, turn: Turn) -> bool:
        """Whether the turn belongs to something that was forgotten while it was being answered."""
        return any(mark.holds(turn) for mark in self._under_way)

    def answered(self, name: str) -> None:
        """All requests that were being answered when this was forgotten have ended."""
        self._under_way = tuple(mark for mark in self._under_way if mark.id != name)

    async def preview(self, what: ForgetTarget) -> ForgetSelection:
        """What would be erased. Raises ConfigError if nothing has that name."""
        async with self._exports.snapshot() as snapshot:  # long: others read meanwhile
            return await snapshot.do(lambda sql: going(sql, what))

    async def begin(
        self,
        what: ForgetTarget,
        *,
        name: str,
        at_s: float,
        planned: Callable[[sqlite3.Connection, ForgetSelection], str],
    ) -> ForgetSelection:
        """Erases the rows and records what remains to be done, in one transaction, synced to disk.

        They are searched for before the transaction, so that storing a turn does not wait for it. Turns that belong to
        it and whose requests came before are not stored any more, until `answered`.
        """
        looked: _ForgetPreview | None = None

        def work(tx: Transaction) -> ForgetSelection | None:
            found = going(tx.sql, what) if looked is None else looked.found
            mark = _under_way(name, found)
            if looked is not None and not looked.still_holds(tx.sql, mark):
                return None
            enter(tx.sql, Forgetting(name, at_s, Phase.CLEANING, planned(tx.sql, found)))
            erase(tx.sql, found)
            self._under_way = (*self._under_way, mark)
            self.begun += 1
            return found

        for left in range(LOOKS, -1, -1):
            looked = await self._look(what) if left else None
            found = await self._hints.changing(work, is_synced=True)  # a forgotten hint leaves prompts at once
            if found is not None:
                return found
        raise AssertionError("a search while nobody writes is valid")

    async def _look(self, what: ForgetTarget) -> _ForgetPreview:
        async with self._exports.snapshot() as snapshot:
            return await snapshot.do(lambda sql: _look(sql, what))

    async def unfinished(self) -> Forgetting | None:
        """The oldest one that is not done."""
        return await self._reader.do(unfinished)

    async def all(self) -> list[Forgetting]:
        """Every one, oldest first."""
        return await self._reader.do(everything)

    async def note(self, held: Forgetting) -> None:
        """Updates the phase and the plan; synced to disk."""
        await self._writer.do(lambda tx: update(tx.sql, held), is_synced=True)

    async def replan(self, held: Forgetting, given_up: Sequence[PolicyVersion]) -> None:
        """As `note`; these versions, whose weights could not be made again, are refused: others replace them."""

        def work(tx: Transaction) -> None:
            update(tx.sql, held)
            for version in given_up:
                versions.give_up(tx.sql, version, WHY_GIVEN_UP)

        await self._writer.do(work, is_synced=True)

    async def remade(self, held: Forgetting, old: PolicyVersion, step: StepRecord) -> None:
        """Commits a rebuilt version: step, version as CANDIDATE, lessons of its turns, the plan; one transaction."""
        await self._writer.do(lambda tx: _remade(tx.sql, held, old, step), is_synced=True)

    async def compact(self) -> float:
        """Rewrites the store's file, without a byte of erased rows; returns for how many seconds nobody could write.

        Raises StoreError if another program reads an earlier state for too long.
        """
        begin = time.monotonic()
        await self._writer.alone(rewrite)
        seconds = time.monotonic() - begin
        for _ in range(LOG_TRIES):
            begin = time.monotonic()
            is_empty = await self._writer.alone(empty_log)
            seconds = max(seconds, time.monotonic() - begin)
            if is_empty:
                await self._reader.do(lambda sql: sql.execute("PRAGMA shrink_memory").close())
                return seconds
            await asyncio.sleep(LOG_PAUSE_S)
        raise StoreError(
            "the store's log cannot be truncated: another program is reading it", fix="close what reads store.db"
        )


def _look(sql: sqlite3.Connection, what: ForgetTarget) -> _ForgetPreview:
    found = going(sql, what)
    return _ForgetPreview(what, found, turns.last_seq(sql), _states(sql, found))


def _states(sql: sqlite3.Connection, found: ForgetSelection) -> tuple[tuple[object, ...], ...]:
    """The states of the turns in sessions that lose one, of hints, episodes and versions."""
    rows: list[tuple[object, ...]] = []
    for session in found.touched:
        rows += sql.execute("SELECT id, state FROM turns WHERE session = ? ORDER BY seq", (plain(session),))
    rows += sql.execute("SELECT id, changed_s FROM hints ORDER BY id")
    rows += sql.execute("SELECT id, state FROM episodes ORDER BY id")
    rows += sql.execute("SELECT scope, number, status FROM versions ORDER BY seq")
    return tuple(rows)


def _under_way(name: str, found: ForgetSelection) -> ForgottenInFlight:
    turned, touched, hinted = (frozenset(each) for each in (found.turns, found.touched, found.hints))
    return ForgottenInFlight(name, time.time(), turned, touched, hinted, found.user)


def enter(sql: sqlite3.Connection, held: Forgetting) -> None:
    """Enters a new forgetting."""
    sql.execute("INSERT INTO forgettings VALUES (?, ?, ?, ?)", (held.id, held.at_s, held.phase.value, held.plan))


def update(sql: sqlite3.Connection, held: Forgetting) -> None:
    """Updates the phase and the plan."""
    sql.execute("UPDATE forgettings SET phase = ?, plan = ? WHERE id = ?", (held.phase.value, held.plan, held.id))


def unfinished(sql: sqlite3.Connection) -> Forgetting | None:
    """The oldest one that is not done."""
    return next((item for item in everything(sql) if item.phase is not Phase.DONE), None)


def everything(sql: sqlite3.Connection) -> list[Forgetting]:
    """All of them, oldest first."""
    rows = sql.execute("SELECT id, at_s, phase, plan FROM forgettings ORDER BY at_s, id")
    return [Forgetting(str(name), float(at_s), Phase(phase), str(plan)) for name, at_s, phase, plan in rows]


def is_due(home: Path) -> bool:
    """Whether erased rows still have bytes in the folder. Reads the store without opening it as one."""
    path = home / NAME
    if not path.is_file():
        return False
    sql = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        found = sql.execute("SELECT 1 FROM forgettings WHERE phase IN ('cleaning', 'compacting')").fetchone()
    except sqlite3.Error:  # an older store has no such table; damage is reported when it is opened
        return False
    finally:
        sql.close()
    return found is not None


def exported_to(sql: sqlite3.Connection) -> list[Path]:
    """The files that records were written to, as full paths."""
    home = versions.home_of(sql)
    return [home / str(row[0]) for row in sql.execute("SELECT path FROM exports ORDER BY at_s")]


def _remade(sql: sqlite3.Connection, held: Forgetting, old: PolicyVersion, step: StepRecord) -> None:
    made = step.version
    if made is None:
        raise ValueError(f"step {step.id} made no version in place of {old}")
    number = (made.version.scope, made.version.number)
    row = sql.execute("SELECT id FROM steps WHERE scope = ? AND number = ?", (old.scope, old.number)).fetchone()
    sql.execute(
        "INSERT INTO steps VALUES (?, ?, ?, ?, ?, ?)",
        (step.id, step.started_s, step.ended_s, *number, metrics_text(step.metrics)),
    )
    versions.insert(sql, made)
    if row is not None:
        sql.execute("UPDATE lessons SET step = ? WHERE step = ?", (step.id, row[0]))
        sql.execute("UPDATE turns SET step = ? WHERE step = ?", (step.id, row[0]))
    update(sql, held)
