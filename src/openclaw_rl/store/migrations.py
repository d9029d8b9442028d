"""Migrations of older stores. `schema.sql` is the newest form; a store of version n gets the steps from n on."""

from __future__ import annotations

import sqlite3

STEPS: dict[int, str] = {
    1: """
CREATE TABLE hints (
  seq       INTEGER PRIMARY KEY,
  id        TEXT NOT NULL UNIQUE,
  user      TEXT NOT NULL,
  text      BLOB NOT NULL,
  source    TEXT NOT NULL,
  state     TEXT NOT NULL CHECK (state IN ('in_use', 'retired')),
  why       TEXT NOT NULL,
  made_s    REAL NOT NULL,
  changed_s REAL NOT NULL,
  turn      TEXT REFERENCES turns (id) ON DELETE CASCADE,
  times     INTEGER NOT NULL
);
CREATE INDEX hints_user ON hints (user, seq);
CREATE INDEX hints_turn ON hints (turn);
""",
    2: """
CREATE TABLE lessons (
  turn   TEXT NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
  scope  TEXT NOT NULL,
  step   TEXT,
  reason TEXT,
  PRIMARY KEY (turn, scope)
) WITHOUT ROWID;
CREATE INDEX lessons_waiting ON lessons (scope, turn) WHERE step IS NULL AND reason IS NULL;
INSERT INTO lessons SELECT turns.id, 'shared', CASE state WHEN 'trained' THEN step END,
  CASE state WHEN 'dropped' THEN turns.reason END
  FROM samples JOIN turns ON turns.id = samples.turn;
ALTER TABLE versions ADD COLUMN upon TEXT;
""",
    3: """
CREATE TABLE judge_calls (
  day   INTEGER PRIMARY KEY,
  calls INTEGER NOT NULL
);
""",
    4: """
CREATE TABLE forgettings (
  id    TEXT PRIMARY KEY,
  at_s  REAL NOT NULL,
  phase TEXT NOT NULL CHECK (phase IN ('cleaning', 'compacting', 'rebuilding', 'done')),
  plan  TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE exports (
  path TEXT PRIMARY KEY,
  at_s REAL NOT NULL
) WITHOUT ROWID;
""",
    5: """
CREATE TABLE pins (
  scope  TEXT PRIMARY KEY,
  number INTEGER NOT NULL,
  ahead  INTEGER,
  at_s   REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE freezes (
  id      INTEGER PRIMARY KEY CHECK (id = 1),
  since_s REAL NOT NULL
);
""",
    6: """
CREATE INDEX versions_status ON versions (status, seq);
""",
    7: """
ALTER TABLE samples ADD COLUMN kind TEXT;
CREATE INDEX samples_kind ON samples (kind, seq) WHERE kind IS NOT NULL;
ALTER TABLE versions ADD COLUMN rehearsed BLOB;
""",
    # Absolute paths pointed into the folder in which a store was made, also from a copy of it.
    8: """
UPDATE versions SET folder = 'versions/' || scope || '.' || number WHERE folder IS NOT NULL;
ALTER TABLE versions ADD COLUMN pruned_s REAL;
""",
    9: """
ALTER TABLE lessons ADD COLUMN returned INTEGER NOT NULL DEFAULT 0;
""",
    10: """
ALTER TABLE bodies ADD COLUMN masked BLOB;
""",
    11: """
CREATE TABLE episodes (
  seq         INTEGER PRIMARY KEY,
  id          TEXT NOT NULL UNIQUE,
  begun_s     REAL NOT NULL,
  seen_s      REAL NOT NULL,
  ended_s     REAL,
  user        TEXT NOT NULL,
  task        TEXT NOT NULL,
  group_name  TEXT,
  group_size  INTEGER,
  closes      INTEGER NOT NULL DEFAULT 0,
  seed        INTEGER,
  environment TEXT NOT NULL,
  state       TEXT NOT NULL CHECK (state IN ('open', 'ended', 'settled')),
  outcome     REAL,
  failure     TEXT NOT NULL CHECK (failure IN ('none', 'agent', 'environment', 'infrastructure')),
  why         TEXT NOT NULL,
  CHECK ((state = 'open') = (ended_s IS NULL))
);
CREATE INDEX episodes_state ON episodes (state, seq);
CREATE INDEX episodes_group ON episodes (user, task, group_name, seq);
CREATE TABLE episode_steps (
  turn        TEXT PRIMARY KEY REFERENCES turns (id) ON DELETE CASCADE,
  episode     TEXT NOT NULL REFERENCES episodes (id) ON DELETE CASCADE,
  place       INTEGER NOT NULL,
  observation TEXT NOT NULL,
  score       REAL
);
CREATE INDEX episode_steps_of ON episode_steps (episode, place);
""",
    12: """
CREATE TABLE overrules (
  seq   INTEGER PRIMARY KEY,
  turn  TEXT NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
  at_s  REAL NOT NULL,
  key_name TEXT NOT NULL,
  score INTEGER NOT NULL CHECK (score IN (-1, 0, 1)),
  hints BLOB NOT NULL,
  judged BLOB NOT NULL
);
CREATE INDEX overrules_turn ON overrules (turn, seq);
CREATE INDEX verdicts_scored ON verdicts (score, seq);
CREATE INDEX sessions_seen ON sessions (seen_s, id);
""",
    13: """
CREATE TABLE unmeant (
  seq     INTEGER PRIMARY KEY,
  turn    TEXT NOT NULL UNIQUE REFERENCES turns (id) ON DELETE CASCADE,
  user    TEXT NOT NULL,
  hints   BLOB NOT NULL,
  since   TEXT,
  undoing BLOB
);
CREATE INDEX unmeant_replaced ON unmeant (user, seq) WHERE since IS NOT NULL;
CREATE TABLE telling (
  seq  INTEGER PRIMARY KEY,
  turn TEXT NOT NULL UNIQUE REFERENCES turns (id) ON DELETE CASCADE
);
""",
}
NEWEST = max(STEPS) + 1


def migrate(connection: sqlite3.Connection, version: int) -> None:
    """Brings a store of this version to the newest, one step and one transaction after the other."""
    for step in range(version, NEWEST):
        connection.executescript(f"BEGIN IMMEDIATE;\n{STEPS[step]}\nPRAGMA user_version={step + 1};\nCOMMIT;")
