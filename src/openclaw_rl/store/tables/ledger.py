"""A turn's path through the states; each move is checked against the table in core/ledger.py when it is written."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from types import MappingProxyType

from openclaw_rl.core.event import EventKind, StoreEvent
from openclaw_rl.core.hint import Hint, HintSource
from openclaw_rl.core.ledger import DropReason, State, check_move
from openclaw_rl.core.message import Json, Role, message
from openclaw_rl.core.next_state import Feedback, NextState, NextStateSource
from openclaw_rl.core.turn import Turn
from openclaw_rl.core.verdict import Verdict, VerdictSource, Vote
from openclaw_rl.errors import DamageError
from openclaw_rl.store import codec
from openclaw_rl.store.codec import listed, plain, text_or_none
from openclaw_rl.store.tables import turns
from openclaw_rl.store.threads import Transaction


def state_of(sql: sqlite3.Connection, turn: str) -> State | None:
    """The turn's state; None for a side turn. Raises ValueError if there is no such turn."""
    row = sql.execute("SELECT state FROM turns WHERE id = ?", (plain(turn),)).fetchone()
    if row is None:
        raise ValueError(f"there is no turn {turn}")
    return None if row[0] is None else State(row[0])


def move(
    transaction: Transaction,
    turn: str,
    after: State,
    reason: DropReason | None = None,
    *,
    is_refused: bool = False,
    facts: Mapping[str, Json] = MappingProxyType({}),
) -> None:
    """Moves a main turn, `is_refused` as in `check_move`. Raises ValueError for a move the tables do not allow.

    `facts` are further fields of its event.
    """
    before = state_of(transaction.sql, turn)
    if before is None:
        raise ValueError(f"turn {turn} is a side turn and has no state")
    check_move(before, after, reason, is_refused=is_refused)
    transaction.sql.execute(
        "UPDATE turns SET state = ?, reason = ? WHERE id = ?",
        (after.value, None if reason is None else reason.value, plain(turn)),
    )
    transaction.moved.add(after)
    about: dict[str, Json] = {"state": after.value, "reason": None if reason is None else reason.value, **facts}
    transaction.events.append(StoreEvent(EventKind.STATE, (turn,), facts=about))


def pair(transaction: Transaction, next_state: NextState) -> bool:
    """SERVED to PAIRED; False if the turn has moved on already."""
    if state_of(transaction.sql, next_state.turn) is not State.SERVED:
        return False
    messages: list[Json] = [codec.message_json(item) for item in next_state.messages]
    transaction.sql.execute(
        "INSERT INTO next_states VALUES (?, ?, ?)",
        (plain(next_state.turn), next_state.source.value, codec.pack_json(messages)),
    )
    move(transaction, next_state.turn, State.PAIRED)
    return True


def judge(transaction: Transaction, verdict: Verdict) -> bool:
    """Stores votes and hints; PAIRED to JUDGED. False if the turn was not PAIRED."""
    sql = transaction.sql
    if state_of(sql, verdict.turn) is not State.PAIRED:
        return False
    votes: list[Json] = [[v.asked, v.raw, v.score, v.hint, v.judge, v.seconds] for v in verdict.votes]
    hints: list[Json] = [[hint.text, hint.source.value] for hint in verdict.hints]
    sql.execute(
        "INSERT INTO verdicts (turn, user, score, source, mean, votes, hints) "
        "VALUES (?, (SELECT user FROM turns WHERE id = ?), ?, ?, ?, ?, ?)",
        (
            plain(verdict.turn),
            plain(verdict.turn),
            verdict.score,
            verdict.source.value,
            verdict.mean,
            codec.pack_json(votes),
            codec.pack_json(hints),
        ),
    )
    facts: dict[str, Json] = {"score": verdict.score, "hints": len(hints), "source": verdict.source.value}
    move(transaction, verdict.turn, State.JUDGED, facts=facts)
    return True


def add_feedback(transaction: Transaction, feedback: Feedback) -> None:
    """Stores it; if it has words and the turn is still SERVED, they are its next state."""
    state = state_of(transaction.sql, feedback.turn)
    transaction.sql.execute(
        "INSERT INTO feedback (turn, score, words, at_s) VALUES (?, ?, ?, ?)",
        (plain(feedback.turn), feedback.score, codec.pack_json(feedback.text), feedback.at_s),
    )
    if state is State.SERVED and feedback.text is not None and feedback.text.strip():
        said = (message(Role.USER, feedback.text),)
        pair(transaction, NextState(feedback.turn, said, NextStateSource.USER))


def paired(
    sql: sqlite3.Connection, limit: int, failed: Mapping[str, int]
) -> tuple[list[tuple[Turn, NextState, Feedback | None]], list[str]]:
    """The pairs that wait for a judge, oldest first, and the turns among them that cannot be read.

    Those that `failed` come last, ordered by how often: there may be thousands after a judge was unavailable.
    """
    found, damaged = [], []
    names = sorted(waiting(sql, State.PAIRED, limit + len(failed)), key=lambda name: failed.get(name, 0))
    for name in names[:limit]:
        try:
            turn, next_state, feedback = turns.get(sql, name), next_state_of(sql, name), feedback_of(sql, name)
        except DamageError:
            turn = next_state = feedback = None
        if turn is None or next_state is None:
            damaged.append(name)
        else:
            found.append((turn, next_state, feedback))
    return found, damaged


def waiting(sql: sqlite3.Connection, state: State, limit: int) -> list[str]:
    """The turns in this state, oldest first; steps of episodes, which the environment judges, are left out."""
    rows = sql.execute(
        "SELECT id FROM turns WHERE state = ? AND NOT EXISTS (SELECT 1 FROM episode_steps WHERE turn = turns.id) "
        "ORDER BY seq LIMIT ?",
        (state.value, limit),
    ).fetchall()
    return [str(row[0]) for row in rows]


def next_state_of(sql: sqlite3.Connection, turn: str) -> NextState | None:
    """The turn's next state."""
    with codec.reading(f"the next state of turn {turn}"):
        row = sql.execute("SELECT source, messages FROM next_states WHERE turn = ?", (plain(turn),)).fetchone()
        if row is None:
            return None
        messages = codec.messages_of(codec.unpack_json(bytes(row[1])), _no_long_texts)
        return NextState(turn, messages, NextStateSource(row[0]))


def feedback_of(sql: sqlite3.Connection, turn: str) -> Feedback | None:
    """The latest feedback on the turn."""
    with codec.reading(f"the feedback on turn {turn}"):
        row = sql.execute(
            "SELECT score, words, at_s FROM feedback WHERE turn = ? ORDER BY seq DESC LIMIT 1", (plain(turn),)
        ).fetchone()
        if row is None:
            return None
        return Feedback(turn, int(row[0]), text_or_none(codec.unpack_json(bytes(row[1]))), float(row[2]))


def verdict_of(sql: sqlite3.Connection, turn: str) -> Verdict | None:
    """The verdict on the turn."""
    with codec.reading(f"the verdict on turn {turn}"):
        row = sql.execute(
            "SELECT score, source, mean, votes, hints FROM verdicts WHERE turn = ?", (plain(turn),)
        ).fetchone()
        if row is None:
            return None
        score, source, mean, votes, hints = row
        return Verdict(
            turn,
            None if score is None else int(score),
            VerdictSource(source),
            votes=tuple(_vote(item) for item in listed(codec.unpack_json(bytes(votes)))),
            hints=tuple(_hint(item) for item in listed(codec.unpack_json(bytes(hints)))),
            mean=None if mean is None else float(mean),
        )


def newest_verdict(sql: sqlite3.Connection) -> int:
    """A number that grows with each verdict; 0 before the first."""
    row = sql.execute("SELECT seq FROM verdicts ORDER BY seq DESC LIMIT 1").fetchone()
    return 0 if row is None else int(row[0])


def counts(sql: sqlite3.Connection) -> dict[str, int]:
    """Turns by state, drops by reason (`dropped.REASON`), side turns and main turns.

    `awaiting_outcome` are the paired turns that wait for the end of their episode, not for a judge.
    """
    found = {state.value: 0 for state in State} | {"side": 0, "main": 0}
    for state, many in sql.execute("SELECT state, count(*) FROM turns GROUP BY state"):
        found["side" if state is None else str(state)] = int(many)
    found["main"] = sum(found[state.value] for state in State)
    for reason, many in sql.execute(
        "SELECT reason, count(*) FROM turns WHERE reason IS NOT NULL GROUP BY reason ORDER BY reason"
    ):
        found[f"dropped.{reason}"] = int(many)
    waits = "SELECT count(*) FROM episode_steps JOIN turns ON turns.id = turn WHERE state = 'paired'"
    if (many := int(sql.execute(waits).fetchone()[0])) > 0:
        found["awaiting_outcome"] = many
    return found


def has_several_users(sql: sqlite3.Connection) -> bool:
    """Whether turns of more than one user were judged; two index lookups, whatever its size."""
    asked = "SELECT {0}(user) FROM verdicts WHERE score IS NOT NULL"
    first, last = (sql.execute(asked.format(which)).fetchone()[0] for which in ("min", "max"))
    return first is not None and first != last


def rewards(sql: sqlite3.Connection, user: str, limit: int) -> tuple[float, ...]:
    """The scores of the user's latest judged turns, newest first."""
    rows = sql.execute(
        "SELECT score FROM verdicts WHERE user = ? AND score IS NOT NULL ORDER BY seq DESC LIMIT ?",
        (plain(user), limit),
    )
    return tuple(float(row[0]) for row in rows)


def _vote(item: Json) -> Vote:
    asked, raw, score, hint, judge_name, seconds = listed(item)
    return Vote(
        str(asked),
        str(raw),
        score if isinstance(score, int) else None,
        text_or_none(hint),
        str(judge_name),
        codec.real(seconds),
    )


def _hint(item: Json) -> Hint:
    text, source = listed(item)
    return Hint(str(text), HintSource(str(source)))


def _no_long_texts(name: str) -> bytes:
    raise codec.damaged(f"a next state names the text {name}")
