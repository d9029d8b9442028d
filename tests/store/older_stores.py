"""Stores of earlier versions, made from new ones: what each step of the migrations did is taken back."""

from __future__ import annotations

import sqlite3

from openclaw_rl.store.migrations import NEWEST, STEPS

UNDO = {
    1: "DROP TABLE hints;",
    2: "DROP TABLE lessons; ALTER TABLE versions DROP COLUMN upon;",
    3: "DROP TABLE judge_calls;",
    4: "DROP TABLE forgettings; DROP TABLE exports;",
    5: "DROP TABLE pins; DROP TABLE freezes;",
    6: "DROP INDEX versions_status;",
    7: "DROP INDEX samples_kind; ALTER TABLE samples DROP COLUMN kind; ALTER TABLE versions DROP COLUMN rehearsed;",
    8: "UPDATE versions SET folder = '/elsewhere/' || folder WHERE folder IS NOT NULL; "
    "ALTER TABLE versions DROP COLUMN pruned_s;",
    9: "ALTER TABLE lessons DROP COLUMN returned;",
    10: "ALTER TABLE bodies DROP COLUMN masked;",
    11: "DROP TABLE episode_steps; DROP TABLE episodes;",
    12: "DROP TABLE overrules; DROP INDEX verdicts_scored; DROP INDEX sessions_seen;",
    13: "DROP TABLE unmeant; DROP TABLE telling;",
}


def take_back(sql: sqlite3.Connection, version: int) -> None:
    """Makes the store one of this version. Whoever adds a step to the migrations adds here how it is undone."""
    assert UNDO.keys() == STEPS.keys()
    for step in range(NEWEST - 1, version - 1, -1):
        sql.executescript(f"{UNDO[step]} PRAGMA user_version={step};")
