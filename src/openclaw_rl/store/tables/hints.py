"""Hints kept for users, as rows: adopted from verdicts or written by hand, retired, used again, removed."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from openclaw_rl.core.hint import NOT_LEARNED, Hint, HintSource, HintState, KeptHint
from openclaw_rl.core.ledger import DropReason
from openclaw_rl.core.next_state import NextState
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.verdict import VerdictSource
from openclaw_rl.errors import DamageError
from openclaw_rl.store import codec
from openclaw_rl.store.codec import plain, text_or_none
from openclaw_rl.store.rows import TurnRow
from openclaw_rl.store.tables import ledger, listing, turns
from openclaw_rl.store.threads import Reader, Transaction, Writer
from openclaw_rl.wording.likeness import is_same_wish, likeness, says_no_more

GIVEN_UP, GIVEN_UP_BESIDE = 2, 5  # conversations after which the weights are not to learn a wish any more
MOST_GIVEN_UP = 50  # corrections that were given up, the newest, among which others are searched
MOST_KEPT = 100  # of one user; above it the least recently changed are forgotten, retired ones first
COLUMNS = "id, user, text, source, state, why, made_s, changed_s, turn, times"
Result = TypeVar("Result")


def of_user(sql: sqlite3.Connection, user: str) -> list[KeptHint]:
    """The hints of one user, oldest first."""
    rows = sql.execute(f"SELECT {COLUMNS} FROM hints WHERE user = ? ORDER BY seq", (plain(user),))
    return [_hint_of(row) for row in rows]


def everyone(sql: sqlite3.Connection) -> list[KeptHint]:
    """All hints, user by user, oldest first."""
    return [_hint_of(row) for row in sql.execute(f"SELECT {COLUMNS} FROM hints ORDER BY user, seq")]


def get(sql: sqlite3.Connection, name: str) -> KeptHint | None:
    """The hint of this id."""
    row = sql.execute(f"SELECT {COLUMNS} FROM hints WHERE id = ?", (name,)).fetchone()
    return None if row is None else _hint_of(row)


def adopt(
    sql: sqlite3.Connection, user: str, hint: Hint, *, turn: str | None, at_s: float, why: str = "asked for"
) -> KeptHint:
    """Takes a hint into use. It replaces the kept ones about the same, retired or not.

    It continues the row of the most similar one; if that says all of it already, that one's words stay.
    """
    kept = of_user(sql, user)
    alike = [item for item in kept if is_same_wish(item.text, hint.text)]
    same = max(alike, key=lambda item: likeness(item.text, hint.text), default=None)
    if same is not None:
        again = "asked for again" if same.is_in_use else f"asked for again after it had retired ({same.why})"
        said = replace(
            same,
            text=same.text if says_no_more(hint.text, same.text) else hint.text.strip(),
            source=hint.source,
            state=HintState.IN_USE,
            why=again,
            changed_s=at_s,
            turn=turn,
            times=same.times + 1,
        )
        _update(sql, said)
        for other in alike:
            if other.id != same.id:
                remove(sql, other.id)
        return said
    new = KeptHint(
        id=f"hint-{uuid.uuid4().hex[:12]}",
        user=user,
        text=hint.text.strip(),
        source=hint.source,
        state=HintState.IN_USE,
        why=why,
        made_s=at_s,
        changed_s=at_s,
        turn=turn,
    )
    sql.execute(f"INSERT INTO hints ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", _row_of(new))
    for old in sorted(kept, key=lambda item: (item.is_in_use, item.changed_s))[: max(0, len(kept) + 1 - MOST_KEPT)]:
        remove(sql, old.id)
    return new


def adopt_from(sql: sqlite3.Connection, turn: str, hint: Hint, *, at_s: float) -> KeptHint:
    """Takes a hint into use for the user whose turn it came from."""
    user = sql.execute("SELECT user FROM turns WHERE id = ?", (plain(turn),)).fetchone()[0]
    return adopt(sql, str(user), hint, turn=turn, at_s=at_s)


def edit(sql: sqlite3.Connection, name: str, text: str, *, at_s: float) -> KeptHint | None:
    """Replaces its words, and puts the hint into use; None if there is none of this id."""
    held = get(sql, name)
    if held is None:
        return None
    new = replace(
        held, text=text.strip(), source=HintSource.OWNER, state=HintState.IN_USE, why="edited by hand", changed_s=at_s
    )
    _update(sql, new)
    return new


def retire(sql: sqlite3.Connection, name: str, *, why: str, at_s: float, text: str | None = None) -> bool:
    """Takes a hint out of use, with the reason; False if it is not in use, or no longer says `text`."""
    held = get(sql, name)
    if held is None or not held.is_in_use or text not in (None, held.text):
        return False
    _update(sql, replace(held, state=HintState.RETIRED, why=why, changed_s=at_s))
    return True


def leave_to_prompts(sql: sqlite3.Connection, turns: Sequence[str], *, is_certain: bool) -> list[KeptHint]:
    """The hints in use that came from these turns, marked as ones that the weights could not learn.

    If that is not certain, only those for which so many corrections that asked for the same were given up: `GIVEN_UP`
    of a user who wishes for nothing else, and `GIVEN_UP_BESIDE` otherwise, since beside other wishes a later correction
    may be learned.
    """
    found = []
    for name in turns:
        row = sql.execute("SELECT user FROM turns WHERE id = ?", (plain(name),)).fetchone()
        said = _hints_of(sql, name)
        for hint in of_user(sql, str(row[0])) if row is not None else ():
            if not hint.is_in_use or hint.needs_prompt or not (hint.turn == name or hint.text in said):
                continue
            if is_certain or _given_up(sql, hint) >= (GIVEN_UP if _is_only_wish(sql, hint) else GIVEN_UP_BESIDE):
                found.append(replace(hint, why=NOT_LEARNED))
                _update(sql, found[-1])
    return found


def _is_only_wish(sql: sqlite3.Connection, hint: KeptHint) -> bool:
    """Whether the weights are to follow no other wish of this user."""
    return not any(one.is_wished and not one.needs_prompt for one in of_user(sql, hint.user) if one.id != hint.id)


def _given_up(sql: sqlite3.Connection, hint: KeptHint) -> int:
    """How many conversations have a correction that asked for the same and was given up as not learnable."""
    rows = sql.execute(  # + : by the index of reasons
        "SELECT id, session FROM turns WHERE +user = ? AND reason = ? ORDER BY seq DESC LIMIT ?",
        (plain(hint.user), DropReason.NOT_LEARNABLE.value, MOST_GIVEN_UP),
    ).fetchall()
    return len({
        session for name, session in rows if any(is_same_wish(hint.text, said) for said in _hints_of(sql, str(name)))
    })  # fmt: skip


def _hints_of(sql: sqlite3.Connection, turn: str) -> list[str]:
    """The hints of a turn's verdict, in words; none if its row is damaged."""
    with suppress(DamageError):
        verdict = ledger.verdict_of(sql, turn)
        return [] if verdict is None else [hint.text for hint in verdict.hints]
    return []


def remove(sql: sqlite3.Connection, name: str) -> bool:
    """Forgets a hint; False if there was none."""
    return sql.execute("DELETE FROM hints WHERE id = ?", (name,)).rowcount > 0


def _update(sql: sqlite3.Connection, hint: KeptHint) -> None:
    name, user, *values = _row_of(hint)
    sql.execute(
        "UPDATE hints SET text = ?, source = ?, state = ?, why = ?, made_s = ?, changed_s = ?, turn = ?, times = ? "
        "WHERE id = ? AND user = ?",
        (*values, name, user),
    )


def _row_of(hint: KeptHint) -> tuple[str | bytes | float | int | None, ...]:
    return (
        hint.id,
        plain(hint.user),
        codec.pack_json(hint.text),
        hint.source.value,
        hint.state.value,
        hint.why,
        hint.made_s,
        hint.changed_s,
        None if hint.turn is None else plain(hint.turn),
        hint.times,
    )


def _hint_of(row: Sequence[object]) -> KeptHint:
    with codec.reading("a hint"):
        name, user, text, source, state, why, made_s, changed_s, turn, times = row
        assert isinstance(text, bytes)
        return KeptHint(
            id=str(name),
            user=str(user),
            text=str(codec.unpack_json(text)),
            source=HintSource(str(source)),
            state=HintState(str(state)),
            why=str(why),
            made_s=codec.real(made_s),
            changed_s=codec.real(changed_s),
            turn=None if turn is None else text_or_none(str(turn)),
            times=int(codec.real(times)),
        )


def unheard(sql: sqlite3.Connection, user: str, limit: int) -> list[tuple[Turn, NextState]]:
    """A user's turns that were judged bad without a hint, newest first, since a turn last gave one; and their answers.

    Damaged rows are left out.
    """
    names = sql.execute(
        "SELECT turn FROM verdicts WHERE user = ? AND score = -1 AND source = ? ORDER BY seq DESC LIMIT ?",
        (plain(user), VerdictSource.VOTES.value, limit),
    ).fetchall()
    found = []
    for (name,) in names:
        with suppress(DamageError):
            verdict, turn, after = ledger.verdict_of(sql, name), turns.get(sql, name), ledger.next_state_of(sql, name)
            if verdict is not None and verdict.hints:
                break
            if turn is not None and after is not None:
                found.append((turn, after))
    return found


class HintBook:
    """Every method that changes a hint returns once that is committed.

    `changes` grows with each change, so that caches of hints know when to read them again.
    """

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader
        self.changes = 0

    async def of_user(self, user: str) -> list[KeptHint]:
        """The hints of one user, oldest first."""
        return await self._reader.do(lambda sql: of_user(sql, user))

    async def everyone(self) -> list[KeptHint]:
        """All hints, user by user."""
        return await self._reader.do(everyone)

    async def get(self, name: str) -> KeptHint | None:
        """The hint of this id."""
        return await self._reader.do(lambda sql: get(sql, name))

    async def latest_rows(self, user: str, *, limit: int) -> list[TurnRow]:
        """The user's latest turns, newest first: those whose prompts may have contained hints."""
        return await self._reader.do(lambda sql: listing.latest_of(sql, user, limit))

    async def unheard(self, user: str, *, limit: int) -> list[tuple[Turn, NextState]]:
        """As the function `unheard`."""
        return await self._reader.do(lambda sql: unheard(sql, user, limit))

    async def verdicts_seen(self, user: str) -> int:
        """A number that grows with each score of a turn of the user."""
        return await self._reader.do(lambda sql: listing.last_verdict(sql, user))

    async def adopt(
        self, user: str, hint: Hint, *, at_s: float, turn: str | None = None, why: str = "asked for"
    ) -> KeptHint:
        """Takes a hint into use. It replaces a kept one that says the same, retired or not."""
        return await self.changing(lambda tx: adopt(tx.sql, user, hint, turn=turn, at_s=at_s, why=why))

    async def edit(self, name: str, text: str, *, at_s: float) -> KeptHint | None:
        """Replaces its words, and puts the hint into use; None if there is none of this id."""
        return await self.changing(lambda tx: edit(tx.sql, name, text, at_s=at_s))

    async def retire(self, name: str, *, why: str, at_s: float, text: str | None = None) -> bool:
        """Takes a hint out of use, with the reason; False if it is not in use, or no longer says `text`."""
        return await self.changing(lambda tx: retire(tx.sql, name, why=why, at_s=at_s, text=text))

    async def leave_to_prompts(self, turns: Sequence[str], *, is_certain: bool = True) -> list[KeptHint]:
        """The hints in use that came from these turns, from now on in prompts: the weights could not learn them.

        `is_certain` as in the function `leave_to_prompts`.
        """
        return await self.changing(lambda tx: leave_to_prompts(tx.sql, turns, is_certain=is_certain))

    async def remove(self, name: str) -> bool:
        """Forgets a hint; False if there was none."""
        return await self.changing(lambda tx: remove(tx.sql, name))

    async def changing(self, work: Callable[[Transaction], Result], *, is_synced: bool = False) -> Result:
        """The result of the work, once it is committed and `changes` has grown; used by all work that removes hints."""

        def counted(transaction: Transaction) -> Result:
            result = work(transaction)
            self.changes += 1  # a cancelled caller does not reach the line below, although its rows are written
            return result

        try:
            return await self._writer.do(counted, is_synced=is_synced)
        finally:
            self.changes += 1
