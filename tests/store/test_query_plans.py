"""Every look-up goes by an index: a store of a million turns answers like one of ten."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from openclaw_rl.core.episode import Episode, EpisodeState, EpisodeStep
from openclaw_rl.core.hint import Hint
from openclaw_rl.core.ledger import State
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import Feedback, NextState, NextStateSource
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.store.connection import open_writer
from openclaw_rl.store.tables import (
    episodes,
    hints,
    ledger,
    listing,
    samples,
    sessions,
    turns,
    unmeant,
    versions,
)
from openclaw_rl.store.threads import Transaction
from openclaw_rl.testing.turns import a_sample, a_turn

SAID = NextState("t0", (message(Role.USER, "no"),), NextStateSource.USER)
VERDICT = Verdict("t0", 1, VerdictSource.VOTES)


def _listed(sql: sqlite3.Connection, *, session: str | None = None, state: State | None = None) -> object:
    return listing.newest(sql, limit=5, session=session, state=state, before="t3")


LOOK_UPS: dict[str, Callable[[sqlite3.Connection], object]] = {
    "a turn": lambda sql: turns.get(sql, "t1"),
    "corrections given up": lambda sql: hints.leave_to_prompts(sql, ["t1"], is_certain=False),
    "corrections without a hint": lambda sql: hints.unheard(sql, "alice", 5),
    "turns by chains": lambda sql: turns.served(sql, ["c", "d"], None),
    "turns of a session by chains": lambda sql: turns.served(sql, ["c", "d"], "key:s"),
    "the last turn": lambda sql: turns.last_of(sql, "key:s"),
    "a row": lambda sql: listing.row(sql, "t1"),
    "newest rows": _listed,
    "newest rows of a session": lambda sql: _listed(sql, session="key:s"),
    "newest rows of a state": lambda sql: _listed(sql, state=State.READY),
    "oldest rows of a user": lambda sql: listing.oldest(sql, limit=5, session=None, user="alice", after="t1"),
    "oldest rows of a session": lambda sql: listing.oldest(sql, limit=5, session="key:s", user=None, after=None),
    "what waits for a judge": lambda sql: ledger.paired(sql, 5, {}),
    "what waits to be admitted": lambda sql: listing.judged(sql, 5, 0),
    "what waits for a step": lambda sql: samples.ready(sql, 5),
    "whether a session has a sample": lambda sql: listing.session_has_sample(sql, "key:s"),
    "latest rows of a user": lambda sql: listing.latest_of(sql, "alice", 5),
    "the last verdict of a user": lambda sql: listing.last_verdict(sql, "alice"),
    "hints of a turn that were not meant": lambda sql: unmeant.add(sql, unmeant.Unmeant("t1", frozenset("a"))),
    "hints of a user that were replaced": lambda sql: unmeant.replaced(sql, "alice", 5),
    "hints of a user": lambda sql: hints.of_user(sql, "alice"),
    "a hint": lambda sql: hints.retire(sql, "hint-1", why="", at_s=1.0),
    "a hint kept": lambda sql: hints.adopt_from(sql, "t1", Hint("Be brief."), at_s=1.0),
    "what waits for the gate": versions.candidates,
    "versions that were live": lambda sql: versions.newest_live(sql, PolicyVersion("shared", 9), 5),
    "the last version": lambda sql: versions.last_number(sql, "shared"),
    "what a version was made from": lambda sql: versions.line(sql, PolicyVersion("shared", 9), 5),
    "open sessions": lambda sql: sessions.open_ones(sql, 5.0),
    "rewards": lambda sql: ledger.rewards(sql, "alice", 5),
    "pairing": lambda sql: ledger.pair(Transaction(sql), SAID),
    "judging": lambda sql: (ledger.pair(Transaction(sql), SAID), ledger.judge(Transaction(sql), VERDICT)),
    "feedback": lambda sql: ledger.add_feedback(Transaction(sql), Feedback("t1", 1, "x", 1.0)),
    "an episode": lambda sql: episodes.get(sql, "e"),
    "a turn's episode": lambda sql: episodes.episode_of(sql, "t0"),
    "episodes of a group": lambda sql: episodes.of_group(sql, episodes.GroupKey("alice", "pens", "g")),
    "a page of episodes": lambda sql: episodes.page(sql, limit=5, before="e", state=EpisodeState.OPEN, task=None),
    "groups that wait": episodes.waiting_groups,
    "silent episodes": lambda sql: episodes.silent(sql, 5.0),
    "the next step": lambda sql: episodes.next_index(sql, "e", "p"),
    "ending": lambda sql: sessions.end(Transaction(sql), "key:s", why="", at_s=1.0),
}
BEST = {  # where two indexes would do, and one of them may hold a thousand alike
    "turns of a session by chains": "turns_chain_of (chain=? AND session=?)",
    "turns by chains": "turns_chain (chain=?)",
    "ending": "turns_prefix (prefix=? AND session=?)",
}


# Found by state, or of one episode, so only what waits or belongs to it is put in order.
SORTED = ("what waits for a step", "what waits to be admitted", "an episode", "a turn's episode", "episodes of a group")


@pytest.mark.parametrize("name", LOOK_UPS)
def test_nothing_is_looked_up_by_reading_a_whole_table(tmp_path: Path, name: str) -> None:
    sql = open_writer(tmp_path / "store.db")
    for number, far in enumerate((0, 1, 2, 3, 4)):
        transaction = Transaction(sql)
        turn = a_turn(f"t{number}")
        turns.insert(sql, turn, chain="c", prefix="p", reason=None)
        sessions.see(sql, sessions.Session(turn.session, turn.user, turn.agent, 0.0, 0.0))
        if far >= 2:
            ledger.pair(transaction, NextState(turn.id, SAID.messages, SAID.source))
        if far >= 3:
            ledger.judge(transaction, Verdict(turn.id, 1, VerdictSource.VOTES))
        if far >= 4:
            samples.admit(transaction, a_sample(turn))
    episodes.insert(sql, Episode("e", "alice", "pens", 1.0, group="g"))
    episodes.enter_step(sql, "t0", EpisodeStep("e", 0), 1.0)
    asked: list[str] = []
    sql.set_trace_callback(asked.append)
    LOOK_UPS[name](sql)
    sql.set_trace_callback(None)
    statements = [each for each in asked if each.startswith(("SELECT", "UPDATE", "DELETE"))]
    assert statements
    plans = ""
    for statement in statements:
        plan = [str(row[3]) for row in sql.execute(f"EXPLAIN QUERY PLAN {statement}")]
        assert not any(step.startswith("SCAN") for step in plan), (statement, plan)
        is_sorted = any("TEMP B-TREE" in step for step in plan)
        assert not is_sorted or name in SORTED, (statement, plan)
        plans += " ".join(plan)
    assert BEST.get(name, "") in plans
    sql.close()
