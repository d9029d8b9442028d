"""An owner's verdict on a turn. It outranks the judge's; both are kept as judge training data."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from openclaw_rl.core.hint import Hint, HintSource
from openclaw_rl.core.ledger import OVERRULED, OVERRULED_DROPS, DropReason, State
from openclaw_rl.core.message import Json, Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.store import codec
from openclaw_rl.store.codec import listed, plain
from openclaw_rl.store.tables import hints, ledger
from openclaw_rl.store.tables.hints import HintBook
from openclaw_rl.store.tables.sessions import THUMBS
from openclaw_rl.store.threads import Reader, Transaction

SAID = {**THUMBS, 0: "(the owner marked this reply as neither good nor bad)"}
STRUCK = "struck by its owner"
COLUMNS = "overrules.turn, overrules.at_s, key_name, overrules.score, overrules.hints, judged"


@dataclass(frozen=True, slots=True)
class Overrule:
    """One turn judged again: by whose key and when, the score and hints, and the judge's verdict (None: none yet)."""

    turn: str
    at_s: float
    key_name: str
    score: int
    hints: tuple[str, ...]
    judged: tuple[int | None, tuple[str, ...]] | None = None

    def __post_init__(self) -> None:
        if self.score not in (-1, 0, 1):
            raise ValueError(f"a score is -1, 0 or 1, not {self.score}")
        if not all(text.strip() for text in self.hints):
            raise ValueError("a hint must not be empty")


class OverruleBook:
    """Every method that changes something returns once it is committed."""

    def __init__(self, hint_book: HintBook, reader: Reader) -> None:
        self._hints = hint_book
        self._reader = reader

    async def add(self, said: Overrule) -> bool:
        """Judges the turn again; False if that is only recorded, since a version has learned from the turn already.

        Raises ValueError for a turn that does not exist, is a side turn or a step of an episode, or cannot be judged.
        """
        return await self._hints.changing(lambda tx: _add(tx, said))

    async def of_turn(self, turn: str) -> list[Overrule]:
        """The owners' verdicts on a turn, oldest first."""
        return await self._reader.do(lambda sql: _read(sql, "WHERE turn = ? ORDER BY seq", (plain(turn),)))

    async def of_user(self, user: str, *, limit: int) -> list[tuple[Overrule, NextState]]:
        """Owners' latest verdicts on turns of a user, newest first, each with the turn's next state."""

        def read(sql: sqlite3.Connection) -> list[tuple[Overrule, NextState]]:
            where = "JOIN turns ON turns.id = overrules.turn WHERE turns.user = ? ORDER BY overrules.seq DESC LIMIT ?"
            said = _read(sql, where, (plain(user), limit))
            found = [(one, ledger.next_state_of(sql, one.turn)) for one in said]
            return [(one, after) for one, after in found if after is not None and after.text not in SAID.values()]

        return await self._reader.do(read)

    async def newest(self, *, limit: int, before_s: float | None = None) -> list[Overrule]:
        """The latest, newest first; `before_s` is a time to page on from."""
        where = "" if before_s is None else "WHERE at_s < ?"
        values = () if before_s is None else (before_s,)
        return await self._reader.do(lambda sql: _read(sql, f"{where} ORDER BY seq DESC LIMIT ?", (*values, limit)))


def _add(transaction: Transaction, said: Overrule) -> bool:
    sql = transaction.sql
    row = sql.execute("SELECT state, reason FROM turns WHERE id = ?", (plain(said.turn),)).fetchone()
    if row is None or row[0] is None:
        raise ValueError(f"turn {said.turn} is not one that can be judged")
    if sql.execute("SELECT 1 FROM episode_steps WHERE turn = ?", (plain(said.turn),)).fetchone() is not None:
        raise ValueError(f"turn {said.turn} is a step of an episode: its environment judges it")
    before = ledger.verdict_of(sql, said.turn)
    judged: Json = None if before is None else [before.score, [hint.text for hint in before.hints]]
    sql.execute(
        "INSERT INTO overrules (turn, at_s, key_name, score, hints, judged) VALUES (?, ?, ?, ?, ?, ?)",
        (
            plain(said.turn),
            said.at_s,
            plain(said.key_name),
            said.score,
            codec.pack_json(list(said.hints)),
            codec.pack_json(judged),
        ),
    )
    _change_kept(sql, said, before)
    state, reason = State(str(row[0])), None if row[1] is None else DropReason(str(row[1]))
    if not may_be_judged(sql, said.turn, state, reason):
        return False
    _judge_anew(transaction, said)
    return True


def may_be_judged(sql: sqlite3.Connection, turn: str, state: State, reason: DropReason | None) -> bool:
    """Whether a new verdict on the turn still decides what is learned from it."""
    if state not in OVERRULED or (state is State.DROPPED and reason not in OVERRULED_DROPS):
        return False
    learned = sql.execute("SELECT 1 FROM lessons WHERE turn = ? AND step IS NOT NULL", (plain(turn),)).fetchone()
    return learned is None


def _judge_anew(transaction: Transaction, said: Overrule) -> None:
    """JUDGED with the owner's verdict, whatever followed from the judge's so far."""
    sql, turn = transaction.sql, plain(said.turn)
    if ledger.next_state_of(sql, said.turn) is None:
        words = (message(Role.USER, " ".join(said.hints) or SAID[said.score]),)
        messages: list[Json] = [codec.message_json(item) for item in words]
        sql.execute(
            "INSERT INTO next_states VALUES (?, ?, ?)", (turn, NextStateSource.USER.value, codec.pack_json(messages))
        )
    for table in ("lessons", "samples", "verdicts", "unmeant"):
        sql.execute(f"DELETE FROM {table} WHERE turn = ?", (turn,))
    sql.execute("UPDATE turns SET state = 'paired', reason = NULL, step = NULL WHERE id = ?", (turn,))
    found = tuple(Hint(text.strip(), HintSource.OWNER) for text in said.hints)
    ledger.judge(transaction, Verdict(said.turn, said.score, VerdictSource.OWNER, hints=found))


def _change_kept(sql: sqlite3.Connection, said: Overrule, before: Verdict | None) -> None:
    """Changes the hints kept because of the turn: retired if the owner's verdict lacks them, else in new words."""
    old = [hint.text for hint in before.hints] if before is not None else []
    new = [text for text in said.hints if text not in old]
    rows = sql.execute("SELECT id, text FROM hints WHERE turn = ? AND state = 'in_use'", (plain(said.turn),)).fetchall()
    for name, _ in rows:
        kept = hints.get(sql, str(name))
        if kept is None or kept.text in said.hints:
            continue
        if new:
            hints.edit(sql, kept.id, new.pop(0), at_s=said.at_s)
        else:
            hints.retire(sql, kept.id, why=STRUCK, at_s=said.at_s)


def _read(sql: sqlite3.Connection, rest: str, values: Sequence[str | float | int]) -> list[Overrule]:
    rows = sql.execute(f"SELECT {COLUMNS} FROM overrules {rest}", values).fetchall()
    found = []
    for turn, at_s, key_name, score, words, judged in rows:
        with codec.reading(f"what was said of turn {turn}"):
            held = codec.unpack_json(bytes(judged))
            texts = tuple(str(text) for text in listed(codec.unpack_json(bytes(words))))
            found.append(Overrule(str(turn), float(at_s), str(key_name), int(score), texts, _judged(held)))
    return found


def _judged(held: Json) -> tuple[int | None, tuple[str, ...]] | None:
    if held is None:
        return None
    score, texts = listed(held)
    return score if isinstance(score, int) else None, tuple(str(text) for text in listed(texts))
