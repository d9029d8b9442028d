"""An overview of the newest turns, verdicts and versions, to explain why nothing is learned."""

from __future__ import annotations

import sqlite3
from collections import Counter

from openclaw_rl.core.facts import CorrectionTrend, Overview
from openclaw_rl.store.tables import turns

RECENT_TURNS = 500
OUTCOME = "score IS NULL AND source = 'environment'"  # of a step: its episode is graded, its user says nothing
RECENT_VERDICTS = 200
RECENT_VERSIONS = 20
SIDE_LOOKED_AT = 20
LOOKED_AT, MOST_TOLD = 40, 6  # turns whose `why` is read, and clauses that are reported of them
GATE = '"gate_turns"'  # among a version's metrics: it was tried
NOT_THE_GATE = ("removed: ", "its folder is missing or damaged: ")  # reasons other than the gate's
UNNAMED = "*:auto-*"  # sessions without a client's name


def overview(sql: sqlite3.Connection) -> Overview:
    """The overview; it reads a few hundred rows."""
    newest = sql.execute(
        "SELECT kind, session, state, session GLOB ?, at_s, id FROM turns ORDER BY seq DESC LIMIT ?",
        (UNNAMED, RECENT_TURNS),
    ).fetchall()
    main = [row for row in newest if row[0] == "main"]
    verdicts = sql.execute(
        "SELECT score, source FROM verdicts ORDER BY seq DESC LIMIT ?", (RECENT_VERDICTS,)
    ).fetchall()
    made = sql.execute(
        "SELECT status, why, metrics FROM versions WHERE parent_number IS NOT NULL ORDER BY seq DESC LIMIT ?",
        (RECENT_VERSIONS,),
    ).fetchall()
    refused = _refused([(str(status), str(why), str(metrics)) for status, why, metrics in made])
    frozen = sql.execute("SELECT since_s FROM freezes").fetchone()
    return Overview(
        paired=_count(sql, "SELECT count(*) FROM next_states"),
        main=len(main),
        side=len(newest) - len(main),
        sessions=len({row[1] for row in main}),
        unnamed=sum(bool(row[3]) for row in main),
        waiting=sum(row[2] == "served" for row in main),
        side_why="" if main else _commonest_why(sql, [str(row[5]) for row in newest[:SIDE_LOOKED_AT]]),
        told=_told(sql, [str(row[5]) for row in newest[:LOOKED_AT]]),
        scores=dict(Counter(None if score is None else int(score) for score, source in verdicts if source == "votes")),
        zeros=sum(score == 0 for score, _ in verdicts),
        refused_in_a_row=len(refused),
        refused_why=refused[0] if refused else "",
        versions=_count(sql, "SELECT count(*) FROM versions WHERE parent_number IS NOT NULL"),
        newest_s=float(newest[0][4]) if newest else None,
        frozen_since_s=None if frozen is None else float(frozen[0]),
        pinned=tuple(f"{scope}.{number}" for scope, number in sql.execute("SELECT scope, number FROM pins")),
        has_forgotten=sql.execute("SELECT 1 FROM forgettings LIMIT 1").fetchone() is not None,
        contentment=_contentment(sql),
    )


def _refused(newest: list[tuple[str, str, str]]) -> list[str]:
    """Why the gate refused each of the newest versions it tried, back to the last one that passed."""
    found = []
    for status, why, metrics in newest:
        if status == "refused" and (GATE not in metrics or why.startswith(NOT_THE_GATE)):
            continue
        if status != "refused":
            break
        found.append(why)
    return found


def _contentment(sql: sqlite3.Connection) -> tuple[CorrectionTrend, ...]:
    rows = sql.execute(
        f"SELECT user, score FROM verdicts WHERE NOT ({OUTCOME}) ORDER BY seq DESC LIMIT ?", (RECENT_VERDICTS,)
    ).fetchall()
    scores: dict[str, list[bool]] = {}
    for user, score in reversed(rows):
        scores.setdefault(str(user), []).append(score == -1)
    found = []
    for user, bad in scores.items():
        half = len(bad) // 2
        found.append(
            CorrectionTrend(user, half, sum(bad[len(bad) - 2 * half : len(bad) - half]), sum(bad[len(bad) - half :]))
        )
    return tuple(found)


def _commonest_why(sql: sqlite3.Connection, names: list[str]) -> str:
    whys = [turn.why.partition(";")[0] for name in names if (turn := turns.get(sql, name)) is not None]
    return Counter(whys).most_common(1)[0][0] if whys else ""


def _told(sql: sqlite3.Connection, names: list[str]) -> dict[str, int]:
    """The clauses in the turns' `why` about errands and speakers, with their counts; the most common first."""
    whys = [turn.why for name in names if (turn := turns.get(sql, name)) is not None]
    clauses = [clause for why in whys for clause in why.split("; ") if clause.startswith(("side: ", "spoke: "))]
    return dict(Counter(clauses).most_common(MOST_TOLD))


def _count(sql: sqlite3.Connection, question: str) -> int:
    return int(sql.execute(question).fetchone()[0])
