-- The truth of one installation. Blobs are packed by codec.py: one flag byte, a CRC-32, then the bytes or their zlib form.
-- A turn's small columns and its large ones are apart, since SQLite writes a whole row again when one column changes.

CREATE TABLE sessions (
  id        TEXT PRIMARY KEY,
  user      TEXT NOT NULL,
  agent     TEXT NOT NULL,
  started_s REAL NOT NULL,
  seen_s    REAL NOT NULL,
  end_why   TEXT,                    -- NULL while it goes on
  ended_s   REAL
) WITHOUT ROWID;
CREATE INDEX sessions_seen ON sessions (seen_s, id);
CREATE INDEX sessions_open ON sessions (seen_s) WHERE end_why IS NULL;

CREATE TABLE turns (
  seq     INTEGER PRIMARY KEY,       -- order of arrival in the store
  id      TEXT NOT NULL UNIQUE,
  session TEXT NOT NULL,
  user    TEXT NOT NULL,
  kind    TEXT NOT NULL CHECK (kind IN ('main', 'side')),
  state   TEXT CHECK (state IN ('served', 'paired', 'judged', 'ready', 'trained', 'dropped')),
  reason  TEXT,
  at_s    REAL NOT NULL,
  version TEXT NOT NULL,
  chain   TEXT NOT NULL,             -- digest of the conversation up to and with the reply
  prefix  TEXT NOT NULL,             -- digest of what was asked; siblings share it
  step    TEXT,
  CHECK ((kind = 'main') = (state IS NOT NULL)),
  CHECK ((reason IS NOT NULL) = (state IS 'dropped'))
);
CREATE INDEX turns_chain ON turns (chain, seq);
CREATE INDEX turns_chain_of ON turns (chain, session, seq);
CREATE INDEX turns_prefix ON turns (prefix, session);
CREATE INDEX turns_line ON turns (session, seq);
CREATE INDEX turns_stand ON turns (session, state);
CREATE INDEX turns_state ON turns (state, seq);
CREATE INDEX turns_reason ON turns (reason) WHERE reason IS NOT NULL;
CREATE INDEX turns_user ON turns (user, seq);

CREATE TABLE bodies (
  seq      INTEGER PRIMARY KEY REFERENCES turns (seq) ON DELETE CASCADE,
  body     BLOB NOT NULL,            -- messages, tools, reply, segments and the rest, as JSON
  prompt   BLOB NOT NULL,            -- ids, little-endian int32
  response BLOB NOT NULL,            -- ids, then logp_sampled and logp as float64
  -- digests of the long texts that `body` names, 16 bytes each; an older SQLite cannot drop a column behind a note
  texts    BLOB NOT NULL,
  masked   BLOB                      -- where a grammar held the answer: logp_masked as float64, then which were forced
);

-- Long messages and tool lists come again with every request of a session: they are kept once.
CREATE TABLE texts (
  digest BLOB PRIMARY KEY,
  body   BLOB NOT NULL
);

CREATE TABLE next_states (
  turn     TEXT PRIMARY KEY REFERENCES turns (id) ON DELETE CASCADE,
  source   TEXT NOT NULL,
  messages BLOB NOT NULL
);

CREATE TABLE verdicts (
  seq    INTEGER PRIMARY KEY,
  turn   TEXT NOT NULL UNIQUE REFERENCES turns (id) ON DELETE CASCADE,
  user   TEXT NOT NULL,
  score  INTEGER CHECK (score IN (-1, 0, 1)),
  source TEXT NOT NULL,
  mean   REAL,
  votes  BLOB NOT NULL,
  hints  BLOB NOT NULL
);
CREATE INDEX verdicts_user ON verdicts (user, seq) WHERE score IS NOT NULL;
CREATE INDEX verdicts_scored ON verdicts (score, seq);

CREATE TABLE feedback (
  seq   INTEGER PRIMARY KEY,         -- the latest one of a turn counts
  turn  TEXT NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
  score INTEGER NOT NULL CHECK (score IN (-1, 0, 1)),
  words BLOB NOT NULL,
  at_s  REAL NOT NULL
);
CREATE INDEX feedback_turn ON feedback (turn, seq);

-- What an owner said of a turn in the judge's place, and what the judge had said: judge training data.
CREATE TABLE overrules (
  seq   INTEGER PRIMARY KEY,         -- the latest one of a turn counts
  turn  TEXT NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
  at_s  REAL NOT NULL,
  key_name TEXT NOT NULL,
  score INTEGER NOT NULL CHECK (score IN (-1, 0, 1)),
  hints BLOB NOT NULL,               -- as JSON
  judged BLOB NOT NULL               -- score and hints before, as JSON; null where nobody had judged
);
CREATE INDEX overrules_turn ON overrules (turn, seq);

CREATE TABLE samples (
  seq  INTEGER PRIMARY KEY,
  turn TEXT NOT NULL UNIQUE REFERENCES turns (id) ON DELETE CASCADE,
  body BLOB NOT NULL,                -- signals, as JSON
  ids  BLOB NOT NULL,                -- prompt and response, little-endian int32
  logp BLOB NOT NULL,                -- float64
  mask BLOB NOT NULL,
  kind TEXT                          -- of a rehearsal sample: digest of its user and the hints that it rehearses
);
CREATE INDEX samples_kind ON samples (kind, seq) WHERE kind IS NOT NULL;

-- What each sample is to train: a row for each scope it belongs to, settled by a step or by a reason.
CREATE TABLE lessons (
  turn   TEXT NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
  scope  TEXT NOT NULL,
  step   TEXT,
  reason TEXT,
  returned INTEGER NOT NULL DEFAULT 0, -- how often a version that had learned from it was refused
  PRIMARY KEY (turn, scope)
) WITHOUT ROWID;
CREATE INDEX lessons_waiting ON lessons (scope, turn) WHERE step IS NULL AND reason IS NULL;

-- Hints of a corrected turn that its user did not mean. `since`: the turn whose correction replaced them; NULL where an
-- accepted reply shows that they were misheard. `undoing` is NULL once nothing is left to undo.
CREATE TABLE unmeant (
  seq     INTEGER PRIMARY KEY,
  turn    TEXT NOT NULL UNIQUE REFERENCES turns (id) ON DELETE CASCADE,
  user    TEXT NOT NULL,
  hints   BLOB NOT NULL,             -- as JSON
  since   TEXT,
  undoing BLOB                       -- as JSON: what is said of the user, and which other hints go with these
);
CREATE INDEX unmeant_replaced ON unmeant (user, seq) WHERE since IS NOT NULL;

-- Turns whose requests showed that a version in service was damaged.
CREATE TABLE telling (
  seq  INTEGER PRIMARY KEY,
  turn TEXT NOT NULL UNIQUE REFERENCES turns (id) ON DELETE CASCADE
);

-- Attempts at tasks, and which turns they took. `group_name`, with user and task: the episodes it is compared with.
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
  place       INTEGER NOT NULL,      -- the step's index, from 0
  observation TEXT NOT NULL,         -- the kind of what the turn was shown
  score       REAL                   -- the step's own reward; NULL where nobody gave one
);
CREATE INDEX episode_steps_of ON episode_steps (episode, place);

CREATE TABLE steps (
  id        TEXT PRIMARY KEY,
  started_s REAL NOT NULL,
  ended_s   REAL NOT NULL,
  scope     TEXT,                    -- with `number`: the version it made
  number    INTEGER,
  metrics   TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE versions (
  seq           INTEGER PRIMARY KEY,
  scope         TEXT NOT NULL,
  number        INTEGER NOT NULL,
  parent_scope  TEXT,
  parent_number INTEGER,
  folder        TEXT,                -- from the folder of this file on; NULL for a version without files
  digest        TEXT NOT NULL,
  status        TEXT NOT NULL CHECK (status IN ('candidate', 'live', 'refused')),
  why           TEXT NOT NULL,
  made_s        REAL NOT NULL,
  turns         BLOB NOT NULL,
  metrics       TEXT NOT NULL,
  upon          TEXT,                -- the shared version that a user's or an agent's own one holds
  rehearsed     BLOB,                -- turns of earlier steps that its own read again; NULL for none
  pruned_s      REAL,                -- when its weights were removed to save room; NULL while they are kept
  UNIQUE (scope, number)
);
CREATE INDEX versions_status ON versions (status, seq);

CREATE TABLE current (
  scope  TEXT PRIMARY KEY,
  number INTEGER NOT NULL,
  why    TEXT NOT NULL
) WITHOUT ROWID;

-- What users have asked for, kept beyond the turn it came from; see core/hint.py.
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
  turn      TEXT REFERENCES turns (id) ON DELETE CASCADE,  -- the corrected one; NULL where written by hand
  times     INTEGER NOT NULL
);
CREATE INDEX hints_user ON hints (user, seq);
CREATE INDEX hints_turn ON hints (turn);

-- How often the judge was asked on each day (UTC, counted from 1970); the days of about a month.
CREATE TABLE judge_calls (
  day   INTEGER PRIMARY KEY,
  calls INTEGER NOT NULL
);

-- What was forgotten on request, and how far that has come: the rows go at once, then the folders, the file's free pages,
-- and last the versions made anew without it. `plan` is JSON; a finished one is the certificate.
CREATE TABLE forgettings (
  id    TEXT PRIMARY KEY,
  at_s  REAL NOT NULL,
  phase TEXT NOT NULL CHECK (phase IN ('cleaning', 'compacting', 'rebuilding', 'done')),
  plan  TEXT NOT NULL
) WITHOUT ROWID;

-- Where records were written to: from the folder of this file on where they lie in it, else a whole path.
CREATE TABLE exports (
  path TEXT PRIMARY KEY,
  at_s REAL NOT NULL
) WITHOUT ROWID;

-- What the owner has ordered. A pinned version is served whatever is trained; `ahead` is what training has come to since.
CREATE TABLE pins (
  scope  TEXT PRIMARY KEY,
  number INTEGER NOT NULL,
  ahead  INTEGER,
  at_s   REAL NOT NULL
) WITHOUT ROWID;

-- One row while no step is to be taken.
CREATE TABLE freezes (
  id      INTEGER PRIMARY KEY CHECK (id = 1),
  since_s REAL NOT NULL
);
