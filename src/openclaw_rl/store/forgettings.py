"""What was forgotten on request, as the other parts ask for it, and how far that has come."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from openclaw_rl.core.sample import Sample
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.store import versions
from openclaw_rl.store.codec import metrics_text, plain
from openclaw_rl.store.connection import NAME
from openclaw_rl.store.forget import Going, What, going
from openclaw_rl.store.forget_rows import erase
from openclaw_rl.store.hint_book import HintBook
from openclaw_rl.store.reader import Reader
from openclaw_rl.store.replay import samples_of
from openclaw_rl.store.rows import StepRecord
from openclaw_rl.store.writer import Transaction, Writer

WHY_GIVEN_UP = "its weights were not kept and could not be made again; it is made anew over the samples that are left"


class Phase(StrEnum):
    """What is being done; the rows are gone in all of them."""

    CLEANING = "cleaning"  # folders of versions, and records written elsewhere
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


class ForgettingBook:
    """The forgettings of an installation."""

    def __init__(self, writer: Writer, reader: Reader, hints: HintBook) -> None:
        self._writer = writer
        self._reader = reader
        self._hints = hints

    async def preview(self, what: What) -> Going:
        """What would go. Raises ConfigError where nothing of that name is there."""
        return await self._reader.do(lambda sql: going(sql, what))

    async def begin(
        self, what: What, *, name: str, at_s: float, planned: Callable[[sqlite3.Connection, Going], str]
    ) -> Going:
        """Erases the rows and notes what is still to be done, in one transaction, synced to disk."""

        def work(tx: Transaction) -> Going:
            found = going(tx.sql, what)
            enter(tx.sql, Forgetting(name, at_s, Phase.CLEANING, planned(tx.sql, found)))
            erase(tx.sql, found)
            return found

        return await self._hints.changing(work, is_synced=True)  # a hint that is forgotten leaves prompts at once

    async def unfinished(self) -> Forgetting | None:
        """The oldest one that is not done."""
        return await self._reader.do(unfinished)

    async def all(self) -> list[Forgetting]:
        """Every one, oldest first."""
        return await self._reader.do(everything)

    async def note(self, held: Forgetting) -> None:
        """Puts the phase and the plan in place of what was noted; synced to disk."""
        await self._writer.do(lambda tx: update(tx.sql, held), is_synced=True)

    async def replan(self, held: Forgetting, given_up: Sequence[PolicyVersion]) -> None:
        """As `note`; these versions, whose weights could not be made again, are refused: others take their place."""

        def work(tx: Transaction) -> None:
            update(tx.sql, held)
            for version in given_up:
                versions.give_up(tx.sql, version, WHY_GIVEN_UP)

        await self._writer.do(work, is_synced=True)

    async def remade(self, held: Forgetting, old: PolicyVersion, step: StepRecord) -> None:
        """A version made again: its step, its version as CANDIDATE, its turns' lessons, the plan; one transaction."""
        await self._writer.do(lambda tx: _remade(tx.sql, held, old, step), is_synced=True)

    async def samples(self, turns: Sequence[str]) -> list[Sample]:
        """The samples of these turns, in the order given; those that are gone are left out."""
        return await self._reader.do(lambda sql: samples_of(sql, turns))

    async def note_export(self, path: Path, *, at_s: float) -> None:
        """Remembers where records were written to: from the home folder on, where they lie in it."""

        def work(tx: Transaction) -> None:
            home, full = versions.home_of(tx.sql), path.resolve()
            kept = full.relative_to(home) if full.is_relative_to(home) else full
            tx.sql.execute("INSERT OR REPLACE INTO exports VALUES (?, ?)", (plain(str(kept)), at_s))

        await self._writer.do(work)


def enter(sql: sqlite3.Connection, held: Forgetting) -> None:
    """A new one."""
    sql.execute("INSERT INTO forgettings VALUES (?, ?, ?, ?)", (held.id, held.at_s, held.phase.value, held.plan))


def update(sql: sqlite3.Connection, held: Forgetting) -> None:
    """Puts the phase and the plan in place of what was noted."""
    sql.execute("UPDATE forgettings SET phase = ?, plan = ? WHERE id = ?", (held.phase.value, held.plan, held.id))


def unfinished(sql: sqlite3.Connection) -> Forgetting | None:
    """The oldest one that is not done."""
    return next((item for item in everything(sql) if item.phase is not Phase.DONE), None)


def everything(sql: sqlite3.Connection) -> list[Forgetting]:
    """All of them, oldest first."""
    rows = sql.execute("SELECT id, at_s, phase, plan FROM forgettings ORDER BY at_s, id")
    return [Forgetting(str(name), float(at_s), Phase(phase), str(plan)) for name, at_s, phase, plan in rows]


def is_due(home: Path) -> bool:
    """Whether the folder holds something that was to be erased and still has bytes in it. Looks without opening it."""
    path = home / NAME
    if not path.is_file():
        return False
    sql = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        found = sql.execute("SELECT 1 FROM forgettings WHERE phase IN ('cleaning', 'compacting')").fetchone()
    except sqlite3.Error:  # an older store has no such table; a damaged one is told of where it is opened
        return False
    finally:
        sql.close()
    return found is not None


def exported_to(sql: sqlite3.Connection) -> list[Path]:
    """Where records were written to, as whole paths."""
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
