"""What only the page reads: conversations, weeks, runs, and whether anything changed.

Every read is at most a page: requests use the same reading thread, so no read may occupy it for long.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openclaw_rl.core.ledger import State
from openclaw_rl.core.message import Role
from openclaw_rl.core.turn import Turn
from openclaw_rl.errors import DamageError
from openclaw_rl.store import codec
from openclaw_rl.store.codec import plain
from openclaw_rl.store.tables import ledger, turns
from openclaw_rl.store.threads import Reader, Writer

SLICE_S = 0.02  # one read; a caller that needs more asks again
WEEK_S = 7 * 86400.0
MOST_TURNS = 400  # of one conversation that are searched
DIGEST = 16  # bytes of a long text's digest
PART = '"type":"text"'  # a message in several parts: words may cross two of them, which are separate in the record


@dataclass(frozen=True, slots=True)
class SessionLine:
    """A conversation in a line. `asked` are its first words, if they are known.

    `episode` is the attempt at a task, if it is one; empty for a talk with a user.
    """

    id: str
    user: str
    agent: str
    seen_s: float
    is_open: bool
    turns: int
    states: Mapping[str, int]
    corrected: int
    asked: str
    said: str
    episode: str = ""


@dataclass(frozen=True, slots=True)
class SessionFilter:
    """Which conversations are wanted: those with a turn in `state`, judged `score`, or with `words` in them.

    `is_attempt`: only attempts at tasks (True), or only others (False).
    """

    user: str | None = None
    state: State | None = None
    score: int | None = None
    words: str = ""
    is_attempt: bool | None = None


@dataclass(frozen=True, slots=True)
class SessionSlice:
    """The result of one read. `at` is where to continue: the time and name of the last conversation read."""

    found: tuple[SessionLine, ...]
    at: tuple[float, str] | None


@dataclass(frozen=True, slots=True)
class WeekCount:
    """How many replies were judged in a week, and how many of them corrected."""

    begin_s: float
    judged: int
    corrected: int


class SeenBook:
    """Only reads; it uses the writer only to know whether writes succeed."""

    def __init__(self, reader: Reader, writer: Writer) -> None:
        self._reader = reader
        self._writer = writer

    @property
    def not_stored(self) -> str:
        """Why the last commit failed, for example because the disk is full; empty if it succeeded."""
        return self._writer.problem

    async def stamp(self) -> tuple[int, int]:
        """Numbers that change when anything is committed; the first grows with each turn."""
        return await self._reader.do(_stamp)

    async def sessions(self, wanted: SessionFilter, *, limit: int, before: tuple[float, str] | None) -> SessionSlice:
        """Conversations, newest first, as many as can be read within `SLICE_S`."""
        return await self._reader.do(lambda sql: _sessions(sql, wanted, limit, before))

    async def turn_ids(self, session: str, *, limit: int, before: str | None) -> list[str]:
        """The turns of a conversation, newest first; `before` is one to page on from."""

        def read(sql: sqlite3.Connection) -> list[str]:
            where, values = "", [plain(session)]
            if before is not None:
                where = "AND seq < (SELECT seq FROM turns WHERE id = ?) "
                values.append(plain(before))
            asked = f"SELECT id FROM turns WHERE session = ? {where}ORDER BY seq DESC LIMIT ?"
            return [str(row[0]) for row in sql.execute(asked, (*values, limit)).fetchall()]

        return await self._reader.do(read)

    async def weeks(self, *, now_s: float, most: int) -> list[WeekCount]:
        """The last weeks, oldest first: seven days each, the last of them ending now."""
        return await self._reader.do(lambda sql: _weeks(sql, now_s, most))

    async def spent(self) -> dict[str, float]:
        """The totals of all steps: their number, their seconds, and the tokens they trained on."""

        def read(sql: sqlite3.Connection) -> dict[str, float]:
            row = sql.execute(
                "SELECT count(*), coalesce(sum(ended_s - started_s), 0), "
                "coalesce(sum(json_extract(metrics, '$.tokens')), 0) FROM steps WHERE json_valid(metrics)"
            ).fetchone()
            return {"steps": int(row[0]), "seconds": float(row[1]), "tokens": float(row[2])}

        return await self._reader.do(read)

    async def runs(self, *, limit: int) -> list[tuple[str, str, float, float | None, str]]:
        """The newest episodes that ended, oldest first: environment, task, when, outcome, class of failure."""

        def read(sql: sqlite3.Connection) -> list[tuple[str, str, float, float | None, str]]:
            rows = sql.execute(
                "SELECT environment, task, ended_s, outcome, failure FROM episodes WHERE ended_s IS NOT NULL "
                "ORDER BY seq DESC LIMIT ?",
                (limit,),
            ).fetchall()
            return [
                (str(kind), str(task), float(at_s), None if outcome is None else float(outcome), str(failure))
                for kind, task, at_s, outcome, failure in reversed(rows)
            ]

        return await self._reader.do(read)


def _stamp(sql: sqlite3.Connection) -> tuple[int, int]:
    newest = sql.execute("SELECT seq FROM turns ORDER BY seq DESC LIMIT 1").fetchone()
    return 0 if newest is None else int(newest[0]), int(sql.execute("PRAGMA data_version").fetchone()[0])


def _sessions(
    sql: sqlite3.Connection, wanted: SessionFilter, limit: int, before: tuple[float, str] | None
) -> SessionSlice:
    end_s = time.monotonic() + SLICE_S
    where, values = ["1"], list[str | float]()
    if before is not None:
        where.append("(seen_s, id) < (?, ?)")
        values += [before[0], plain(before[1])]
    if wanted.user is not None:
        where.append("user = ?")
        values.append(plain(wanted.user))
    asked = (
        f"SELECT id, user, agent, seen_s, end_why FROM sessions WHERE {' AND '.join(where)} "
        "ORDER BY seen_s DESC, id DESC"
    )
    search = Search(sql, wanted.words) if wanted.words else None
    found: list[SessionLine] = []
    for name, user, agent, seen_s, end_why in sql.execute(asked, values):
        if _fits(sql, str(name), wanted, search):
            found.append(_line(sql, (str(name), str(user), str(agent), float(seen_s), end_why is None)))
        if len(found) == limit or time.monotonic() > end_s:
            return SessionSlice(tuple(found), (float(seen_s), str(name)))
    return SessionSlice(tuple(found), None)


def _fits(sql: sqlite3.Connection, session: str, wanted: SessionFilter, search: Search | None) -> bool:
    name = plain(session)
    if sql.execute("SELECT 1 FROM turns WHERE session = ? LIMIT 1", (name,)).fetchone() is None:
        return False
    if wanted.state is not None:
        asked = "SELECT 1 FROM turns WHERE session = ? AND state = ? LIMIT 1"
        if sql.execute(asked, (name, wanted.state.value)).fetchone() is None:
            return False
    if wanted.score is not None:
        asked = "SELECT 1 FROM turns JOIN verdicts ON verdicts.turn = turns.id WHERE session = ? AND score = ? LIMIT 1"
        if sql.execute(asked, (name, wanted.score)).fetchone() is None:
            return False
    if wanted.is_attempt is not None:
        asked = "SELECT 1 FROM turns JOIN episode_steps ON episode_steps.turn = turns.id WHERE session = ? LIMIT 1"
        if (sql.execute(asked, (name,)).fetchone() is not None) is not wanted.is_attempt:
            return False
    return search is None or search.holds(session)


def _line(sql: sqlite3.Connection, row: tuple[str, str, str, float, bool]) -> SessionLine:
    name, user, agent, seen_s, is_open = row
    states = {
        "side" if state is None else str(state): int(many)
        for state, many in sql.execute(
            "SELECT state, count(*) FROM turns WHERE session = ? GROUP BY state", (plain(name),)
        ).fetchall()
    }
    corrected = sql.execute(
        "SELECT count(*) FROM turns JOIN verdicts ON verdicts.turn = turns.id WHERE session = ? AND score = -1",
        (plain(name),),
    ).fetchone()[0]
    asked, said, episode = _words(sql, name)
    count = sum(states.values())
    return SessionLine(name, user, agent, seen_s, is_open, count, states, int(corrected), asked, said, episode)


def _words(sql: sqlite3.Connection, session: str) -> tuple[str, str, str]:
    """The first request of a conversation, the last reply, and the episode it belongs to."""
    found = []
    for order in ("", "DESC"):
        row = sql.execute(f"SELECT id FROM turns WHERE session = ? ORDER BY seq {order} LIMIT 1", (plain(session),))
        try:
            found.append(turns.get(sql, str(row.fetchone()[0])))
        except DamageError:
            found.append(None)
    first, last = found
    episode = "" if last is None or last.step is None else last.step.episode
    return "" if first is None else last_words(first), "" if last is None else last.reply.text, episode


def _weeks(sql: sqlite3.Connection, now_s: float, most: int) -> list[WeekCount]:
    begins = [now_s - WEEK_S * (most - at) for at in range(most)]
    edges = [_first_judged(sql, begin) for begin in begins] + [ledger.newest_verdict(sql) + 1]
    counted = "SELECT count(*) FROM verdicts INDEXED BY verdicts_scored WHERE score = ? AND seq >= ? AND seq < ?"
    found = []
    for begin, low, high in zip(begins, edges, edges[1:], strict=False):
        each = [int(sql.execute(counted, (score, low, high)).fetchone()[0]) for score in (-1, 0, 1)]
        found.append(WeekCount(begin, sum(each), each[0]))
    return found


def _first_judged(sql: sqlite3.Connection, since_s: float) -> int:
    """The `seq` of the first verdict on a turn since that time: verdicts are nearly in the order of turns."""
    low, high = 1, ledger.newest_verdict(sql) + 1
    while low < high:
        middle = (low + high) // 2
        row = _judged_from(sql, middle)
        if row is None or float(row[1]) >= since_s:
            high = middle
        else:
            low = int(row[0]) + 1
    return low


def _judged_from(sql: sqlite3.Connection, seq: int) -> Sequence[float] | None:
    found: Sequence[float] | None = sql.execute(
        "SELECT verdicts.seq, turns.at_s FROM verdicts JOIN turns ON turns.id = verdicts.turn "
        "WHERE verdicts.seq >= ? ORDER BY verdicts.seq LIMIT 1",
        (seq,),
    ).fetchone()
    return found


class Search:
    """Searches conversations for words: a turn's record is skimmed as text first, and parsed only if it may match.

    Skimming takes a tenth of the time of parsing, and most turns do not match.
    """

    def __init__(self, sql: sqlite3.Connection, words: str) -> None:
        self._sql = sql
        self._words = words.casefold()
        self._written = codec.json_bytes(self._words)[1:-1].decode("utf-8", "surrogatepass")
        self._long: dict[bytes, bool] = {}  # long texts that were searched; every request repeats them

    def holds(self, session: str) -> bool:
        """Whether the words are in a conversation. Its newest request contains the older ones."""
        rows = self._sql.execute(
            "SELECT turns.id, bodies.body, bodies.texts, next_states.messages FROM turns JOIN bodies USING (seq) "
            "LEFT JOIN next_states ON next_states.turn = turns.id WHERE session = ? ORDER BY turns.seq DESC LIMIT ?",
            (plain(session), MOST_TURNS),
        )
        return any(
            self._may_hold(body, texts, after) and self._is_said(str(name), is_newest=at == 0)
            for at, (name, body, texts, after) in enumerate(rows.fetchall())
        )

    def _may_hold(self, body: bytes, texts: bytes, after: bytes | None) -> bool:
        """Whether the words, as JSON writes them, are anywhere in a turn's record."""
        digests = (texts[at : at + DIGEST] for at in range(0, len(texts), DIGEST))
        return self._stands(body) or (after is not None and self._stands(after)) or any(map(self._stands_in, digests))

    def _stands_in(self, digest: bytes) -> bool:
        if (known := self._long.get(digest)) is None:
            row = self._sql.execute("SELECT body FROM texts WHERE digest = ?", (digest,)).fetchone()
            known = self._long[digest] = row is None or self._stands(row[0])
        return known

    def _stands(self, blob: bytes) -> bool:
        try:
            with codec.reading("a record"):
                text = codec.unpack(blob).decode("utf-8", "surrogatepass")
        except DamageError:
            return True  # reading the turn reports what is wrong with it
        return self._written in text.casefold() or PART in text

    def _is_said(self, name: str, *, is_newest: bool) -> bool:
        """Whether the words are in the reply, the last request or the next state; in the newest, in any message."""
        try:
            turn, after = turns.get(self._sql, name), ledger.next_state_of(self._sql, name)
        except DamageError:
            return False
        if turn is None:
            return False
        said = [turn.reply.text, last_words(turn), "" if after is None else after.text]
        said += [item.text for item in turn.messages] if is_newest else []
        return any(self._words in text.casefold() for text in said)


def last_words(turn: Turn) -> str:
    """The newest user message in the request."""
    return next((item.text for item in reversed(turn.messages) if item.role is Role.USER), "")
