"""The effects of versions: how the turns they answered were judged, and what the turns they learned from taught.

The latter also in the users' own words, and whether it was asked for again since.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from openclaw_rl.core.ledger import State
from openclaw_rl.core.next_state import NextStateSource
from openclaw_rl.core.sample import Sample
from openclaw_rl.core.verdict import Verdict
from openclaw_rl.core.version import PolicyVersion, parse_version
from openclaw_rl.store.codec import plain
from openclaw_rl.store.rows import VersionRow, VersionStatus
from openclaw_rl.store.tables import ledger, versions
from openclaw_rl.store.tables.samples import samples_of
from openclaw_rl.store.threads import Reader
from openclaw_rl.wording.likeness import asks_alike, is_same_wish

NEWEST = 2000  # verdicts that are considered
SEARCHED = 2000  # newest turns that are searched for requests of conversations
MOST_SINCE = 500  # newest verdicts of a user that are considered
MOST_WISHES = 30
MOST_BEFORE = 20  # corrections of a conversation that are searched for the one that an accepted reply answers
MOST_READ = 400  # turns that taught something: one read must not delay those of requests


@dataclass(frozen=True, slots=True)
class CorrectionRecord:
    """How a turn was judged: corrected (a score of -1), or not. `at` orders turns by their arrival."""

    turn: str
    version: PolicyVersion
    is_corrected: bool
    at: int


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """A main turn without its contents, which take long to read: who answered it, and what became of it.

    `score` is that of its verdict; None if there is none yet, or it is not sure.
    """

    turn: str
    session: str
    version: PolicyVersion
    state: State
    score: int | None


@dataclass(frozen=True, slots=True)
class TurnLesson:
    """What a turn teaches: the texts of its hints, its score, and whether it is a step of an attempt at a task."""

    hints: tuple[str, ...]
    score: int | None
    is_step: bool

    @property
    def kind(self) -> str:
        """Its kind: `attempts`, `corrected`, `praised` or `others`."""
        return "attempts" if self.is_step else {-1: "corrected", 1: "praised"}.get(self.score or 0, "others")


class EffectBook:
    """Reads alone."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def last_judged(self) -> int:
        """A number that grows with each score of a turn."""
        return await self._reader.do(ledger.newest_verdict)

    async def outcomes(self, *, limit: int = NEWEST) -> list[CorrectionRecord]:
        """The turns scored last, in the order in which they were served."""
        return await self._reader.do(lambda sql: outcomes(sql, limit))

    async def answered(self, *, limit: int) -> list[AnsweredRequest]:
        """The newest requests of conversations, newest first; steps of attempts at tasks are left out."""
        return await self._reader.do(lambda sql: answered(sql, limit))

    async def samples(self, turns: Sequence[str]) -> list[Sample]:
        """The samples of these turns, in the order given; those that are gone are left out."""
        return await self._reader.do(lambda sql: samples_of(sql, turns))

    async def lessons(self, turns: Iterable[str]) -> dict[str, TurnLesson]:
        """What each of these turns teaches."""

        def read(sql: sqlite3.Connection) -> dict[str, TurnLesson]:
            found = {turn: ledger.verdict_of(sql, turn) for turn in turns}
            return {
                turn: TurnLesson(_hints_of(sql, turn, verdict), verdict.score, _is_step(sql, turn))
                for turn, verdict in found.items()
                if verdict is not None
            }

        return await self._reader.do(read)

    async def taught(self, *, limit: int = 50) -> list[TaughtWish]:
        """What the versions served now learned, newest first, and whether it was asked for again since.

        Versions that were rolled back are not ancestors of the served one, and left out.
        """

        def read(sql: sqlite3.Connection) -> list[TaughtWish]:
            rows = versions.newest_of(sql, VersionStatus.LIVE, limit)
            scopes = {row.version.scope for row in rows}
            served = [versions.line(sql, versions.current(sql, scope), limit) for scope in scopes]
            held = {row.version for line in served for row in line}
            return taught(sql, [row for row in rows if row.version in held])

        return await self._reader.do(read)

    async def asked_twice(self, *, most: int = 300) -> tuple[int, int]:
        """Of the newest corrections, how many ask for what their user had asked for before; and of how many."""
        return await self._reader.do(lambda sql: asked_twice(sql, most=most))


def _hints_of(sql: sqlite3.Connection, turn: str, verdict: Verdict) -> tuple[str, ...]:
    """What a turn teaches in words: its verdict's hints, or those that an accepted reply is learned with."""
    if verdict.hints or verdict.score is None or verdict.score < 0:
        return tuple(hint.text for hint in verdict.hints)
    is_lesson = sql.execute("SELECT 1 FROM samples WHERE turn = ? AND kind IS NULL", (plain(turn),)).fetchone()
    return tuple(
        hint.text
        for sample in (samples_of(sql, [turn]) if is_lesson else ())
        if sample.is_taught and sample.score is None
        for hint in sample.hints
    )


def _is_step(sql: sqlite3.Connection, turn: str) -> bool:
    return sql.execute("SELECT 1 FROM episode_steps WHERE turn = ?", (plain(turn),)).fetchone() is not None


def answered(sql: sqlite3.Connection, limit: int) -> list[AnsweredRequest]:
    """The newest requests of conversations among the newest turns, newest first."""
    rows = sql.execute(
        "SELECT turns.id, turns.session, turns.version, turns.state, verdicts.score FROM turns "
        "LEFT JOIN verdicts ON verdicts.turn = turns.id WHERE turns.kind = 'main' "
        "AND turns.seq > (SELECT MAX(seq) FROM turns) - ? "
        "AND NOT EXISTS (SELECT 1 FROM episode_steps WHERE turn = turns.id) ORDER BY turns.seq DESC LIMIT ?",
        (SEARCHED, limit),
    ).fetchall()
    return [
        AnsweredRequest(
            str(turn), str(session), parse_version(str(name)), State(str(state)), None if score is None else int(score)
        )
        for turn, session, name, state, score in rows
    ]


def outcomes(sql: sqlite3.Connection, limit: int) -> list[CorrectionRecord]:
    """The newest scores of turns, as outcomes in the order of the turns.

    A turn right after a corrected one of its session is left out: its request said what was wrong, so its score says
    little about the weights.
    """
    rows = sql.execute(
        "SELECT turns.id, turns.version, verdicts.score, turns.seq, turns.session FROM verdicts "
        "JOIN turns ON turns.id = verdicts.turn WHERE verdicts.score IS NOT NULL ORDER BY verdicts.seq DESC LIMIT ?",
        (limit,),
    ).fetchall()
    found: list[CorrectionRecord] = []
    was_corrected: dict[str, bool] = {}
    for turn, version, score, at, session in sorted(rows, key=lambda row: int(row[3])):
        if not was_corrected.get(session):
            found.append(CorrectionRecord(str(turn), parse_version(str(version)), score == -1, int(at)))
        was_corrected[session] = score == -1
    return found


@dataclass(frozen=True, slots=True)
class TaughtWish:
    """One wish that live versions learned: in the user's words, its turns, and how later replies were judged.

    `since` counts judged replies to the user by these versions and later ones, `again` those after which the same was
    asked for again. `asked` counts the corrections that it was learned from.
    """

    user: str
    hint: str
    words: str
    learned_s: float
    version: PolicyVersion
    turns: tuple[str, ...]
    since: int = 0
    again: int = 0
    again_turns: tuple[str, ...] = field(default=())

    @property
    def asked(self) -> int:
        """Corrections."""
        return len(self.turns)


def taught(sql: sqlite3.Connection, rows: Sequence[VersionRow]) -> list[TaughtWish]:
    """The wishes of these versions (live ones, oldest first), the newest first."""
    found: list[TaughtWish] = []
    for row in _affordable(rows):
        for turn in row.turns[:MOST_READ]:
            wish = _wish(sql, turn, row)
            if wish is None:
                continue
            same = next((one for one in found if one.user == wish.user and asks_alike(one.hint, wish.hint)), None)
            if same is None:
                found.append(wish)
            elif turn not in same.turns:
                found[found.index(same)] = replace(same, turns=(*same.turns, turn))
    newest = sorted(found, key=lambda one: one.learned_s, reverse=True)[:MOST_WISHES]
    return [_with_since(sql, one) for one in newest]


def asked_twice(sql: sqlite3.Connection, *, most: int) -> tuple[int, int]:
    """Of the newest corrections with a hint, how many ask for what their user had asked for before; and of how many."""
    rows = sql.execute(
        "SELECT turn, user FROM verdicts INDEXED BY verdicts_scored WHERE score = -1 ORDER BY seq DESC LIMIT ?", (most,)
    ).fetchall()
    known: dict[str, list[str]] = {}
    twice = asked = 0
    for turn, user in reversed(rows):
        verdict = ledger.verdict_of(sql, str(turn))
        if verdict is None or not verdict.hints:
            continue
        asked += 1
        said = verdict.hints[0].text
        before = known.setdefault(str(user), [])
        twice += any(asks_alike(said, other) for other in before)
        before.append(said)
    return twice, asked


def _affordable(rows: Sequence[VersionRow]) -> list[VersionRow]:
    """The newest versions that together were made from at most `MOST_READ` turns, oldest first; at least one."""
    read, found = 0, list[VersionRow]()
    for row in reversed(rows):
        read += len(row.turns)
        if found and read > MOST_READ:
            break
        found.append(row)
    return found[::-1]


def _wish(sql: sqlite3.Connection, turn: str, row: VersionRow) -> TaughtWish | None:
    verdict = ledger.verdict_of(sql, turn)
    hints = () if verdict is None else _hints_of(sql, turn, verdict)
    if verdict is None or not hints:
        return None
    owner = sql.execute("SELECT user FROM turns WHERE id = ?", (plain(turn),)).fetchone()
    # After an accepted reply come thanks; what it was accepted for was said before it.
    corrected = turn if verdict.hints else _correction_before(sql, turn, hints[0])
    after = None if corrected is None else ledger.next_state_of(sql, corrected)
    said = after.text if after is not None and after.source is NextStateSource.USER else hints[0]
    return TaughtWish(str(owner[0]), hints[0], said, row.made_s, row.version, (corrected or turn,))


def _correction_before(sql: sqlite3.Connection, turn: str, hint: str) -> str | None:
    """The latest corrected turn before this one in its session that asked for the same as the hint."""
    rows = sql.execute(
        "SELECT earlier.id FROM turns AS earlier JOIN turns AS one ON earlier.session = one.session "
        "JOIN verdicts ON verdicts.turn = earlier.id "
        "WHERE one.id = ? AND earlier.seq < one.seq AND verdicts.score = -1 ORDER BY earlier.seq DESC LIMIT ?",
        (plain(turn), MOST_BEFORE),
    ).fetchall()
    for (earlier,) in rows:
        verdict = ledger.verdict_of(sql, str(earlier))
        if verdict is not None and any(asks_alike(hint, asked.text) for asked in verdict.hints):
            return str(earlier)
    return None


def _with_since(sql: sqlite3.Connection, wish: TaughtWish) -> TaughtWish:
    rows = sql.execute(
        "SELECT verdicts.turn, verdicts.score, turns.version FROM verdicts JOIN turns ON turns.id = verdicts.turn "
        "WHERE verdicts.user = ? AND verdicts.score IS NOT NULL ORDER BY verdicts.seq DESC LIMIT ?",
        (plain(wish.user), MOST_SINCE),
    ).fetchall()
    since = 0
    again: list[str] = []
    for turn, score, name in rows:
        version = parse_version(str(name))
        if version.scope != wish.version.scope or version.number < wish.version.number:
            continue
        since += 1
        if score != -1:
            continue
        verdict = ledger.verdict_of(sql, str(turn))
        if verdict is not None and any(is_same_wish(wish.hint, hint.text) for hint in verdict.hints):
            again.append(str(turn))
    return replace(wish, since=since, again=len(again), again_turns=tuple(again))
