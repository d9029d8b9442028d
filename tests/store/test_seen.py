"""What the page reads: conversations by filter and words, weeks by their edges, and what was learned and held."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

from openclaw_rl.core.episode import Episode, EpisodeStep
from openclaw_rl.core.hint import Hint
from openclaw_rl.core.ledger import State
from openclaw_rl.core.message import Message, Role, TextPart, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.sample import HintPrompt
from openclaw_rl.core.turn import TurnKind
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.store.db import Store
from openclaw_rl.store.tables.seen import WEEK_S, SessionFilter, WeekCount
from openclaw_rl.testing.folders import a_small_adapter, add_version, lived_in
from openclaw_rl.testing.turns import a_sample, a_turn

ONE = PolicyVersion("shared", 1)


async def judged(store: Store, name: str, score: int, hint: str = "", *, said: str = "hm", **how: object) -> None:
    turn = a_turn(name, **{"session": f"key:{name}", **how})  # type: ignore[arg-type]
    await store.add_turn(turn, chain=name, prefix=name)
    await store.pair(NextState(name, (message(Role.USER, said),), NextStateSource.USER))
    hints = (Hint(hint),) if hint else ()
    await store.judge(Verdict(name, score, VerdictSource.VOTES, hints=hints))
    if score:
        await store.admit(a_sample(turn))


async def found(store: Store, wanted: SessionFilter) -> list[str]:
    """All of them: a search ends after half a second, and says where to continue."""
    page = await store.seen.sessions(wanted, limit=50, before=None)
    ids = [one.id for one in page.found]
    while page.at is not None:
        page = await store.seen.sessions(wanted, limit=50, before=page.at)
        ids += [one.id for one in page.found]
    return ids


async def test_conversations_come_newest_first_a_page_at_a_time(store: Store) -> None:
    for at in range(5):
        await store.add_turn(a_turn(f"t{at}", session=f"key:{at}"), chain=f"t{at}", seen_s=100.0 + at)
    first = await store.seen.sessions(SessionFilter(), limit=3, before=None)
    assert ([one.id for one in first.found], first.at) == (["key:4", "key:3", "key:2"], (102.0, "key:2"))
    rest = await store.seen.sessions(SessionFilter(), limit=3, before=first.at)
    assert ([one.id for one in rest.found], rest.at) == (["key:1", "key:0"], None)
    line = rest.found[0]
    assert (line.asked, line.said, line.turns, line.states) == ("What is 2 + 2?", "4", 1, {"served": 1})


async def test_they_are_filtered_by_user_state_score_and_words_in_what_anybody_said(store: Store) -> None:
    await judged(store, "bad", -1, said="No, in ÖLKERN please.")
    await judged(store, "fine", 1, user="bob")
    await store.add_turn(a_turn("new", "An apple?", "A pear.", session="key:new"), chain="new")
    assert await found(store, SessionFilter(score=-1)) == ["key:bad"]
    assert await found(store, SessionFilter(state=State.SERVED)) == ["key:new"]
    assert await found(store, SessionFilter(user="bob")) == ["key:fine"]
    assert await found(store, SessionFilter(words="ölkern")) == ["key:bad"]  # what followed
    assert await found(store, SessionFilter(words="APPLE")) == ["key:new"]  # what was asked
    assert await found(store, SessionFilter(words="pear")) == ["key:new"]  # what was replied
    assert await found(store, SessionFilter(words="plum")) == []


async def test_attempts_at_tasks_and_talks_are_told_apart(store: Store) -> None:
    await store.add_turn(a_turn("talk", session="key:talk"), chain="talk")
    await store.episodes.begin(Episode("key:try", "alice", "pens", 1000.0, environment="toy"))
    step = replace(a_turn("step", session="key:try"), step=EpisodeStep("key:try", 0, "terminal"))
    await store.add_turn(step, chain="step")
    assert await found(store, SessionFilter(is_attempt=False)) == ["key:talk"]
    assert await found(store, SessionFilter(is_attempt=True)) == ["key:try"]
    assert len(await found(store, SessionFilter())) == 2


async def test_words_are_found_however_the_record_holds_them(store: Store) -> None:
    said = {
        "quoted": 'She said "Ça va?"\nand left\\went.',
        "long": "Such is the end. " * 200 + "A ZEBRA came.",  # kept once, under its digest
        "lone": "half a pair \ud83d of an emoji",
    }
    for at, (name, text) in enumerate(said.items()):
        await store.add_turn(a_turn(name, text, session=f"key:{name}"), chain=name, seen_s=float(at))
    parts = Message(Role.USER, (TextPart("An aard"), TextPart("vark.")))
    await store.add_turn(replace(a_turn("parts", session="key:parts"), messages=(parts,)), chain="parts", seen_s=9.0)
    assert await found(store, SessionFilter(words='"ÇA VA?"\nAND left\\')) == ["key:quoted"]
    assert await found(store, SessionFilter(words="zebra")) == ["key:long"]
    assert await found(store, SessionFilter(words="\ud83d OF")) == ["key:lone"]
    assert await found(store, SessionFilter(words="aardvark")) == ["key:parts"]  # across two parts of one message
    assert await found(store, SessionFilter(words='"role"')) == []  # of the record, not of what was said


async def test_a_damaged_turn_hides_no_other(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    for at, name in enumerate(("one", "two")):
        await store.add_turn(a_turn(name, "An apple?", session="key:both"), chain=name, seen_s=float(at))
    await store.aclose()
    with sqlite3.connect(tmp_path / "store.db") as sql:
        sql.execute("UPDATE bodies SET body = x'0000000000' || zeroblob(9) WHERE seq = 2")
    sql.close()
    store = await Store.open(tmp_path)
    assert await found(store, SessionFilter(words="apple")) == ["key:both"]
    await store.aclose()


async def test_a_week_counts_what_was_judged_in_it(store: Store) -> None:
    now_s = 10 * WEEK_S
    for at, (weeks_ago, score) in enumerate([(2.5, -1), (1.5, -1), (1.2, 1), (0.5, 0), (0.1, 1)]):
        await judged(store, f"t{at}", score, at_s=now_s - weeks_ago * WEEK_S)
    assert await store.seen.weeks(now_s=now_s, most=3) == [
        WeekCount(7 * WEEK_S, 1, 1),
        WeekCount(8 * WEEK_S, 2, 1),
        WeekCount(9 * WEEK_S, 2, 0),
    ]


async def test_what_was_learned_is_told_in_the_users_words_with_what_was_asked_again_since(
    store: Store, tmp_path: Path
) -> None:
    wish = "Write plain sentences without markdown."
    await judged(store, "a", -1, wish, said="No markdown, please!")
    await judged(store, "other", -1, "Be kind.", user="bob")
    await add_version(store, tmp_path, 1, a_small_adapter, ("a",))
    await judged(store, "good", 1, version=ONE)
    await judged(store, "else", -1, "Name the year.", version=ONE)
    await judged(store, "bobs", -1, wish, version=ONE, user="bob")  # another user's is no breach
    (learned,) = await store.effects.taught()
    assert (learned.words, learned.hint, learned.user, learned.turns) == ("No markdown, please!", wish, "alice", ("a",))
    assert (learned.version, learned.since, learned.again) == (ONE, 2, 0)
    await judged(store, "again", -1, "Write plain sentences, without any markdown.", version=ONE)
    (learned,) = await store.effects.taught()
    assert (learned.since, learned.again, learned.again_turns) == (3, 1, ("again",))
    await store.set_current(ONE, why="")
    assert len(await store.effects.taught()) == 1
    await store.set_current(BASE, why="went back")
    assert await store.effects.taught() == []  # what is served has not learned it
    assert await store.effects.asked_twice() == (1, 5)  # of five corrections one asks what its user had asked before


async def test_the_stamp_changes_with_every_commit_and_only_then(store: Store) -> None:
    before = await store.seen.stamp()
    assert await store.seen.stamp() == before
    await store.add_turn(a_turn("t"), chain="t")
    after = await store.seen.stamp()
    assert after != before and after[0] == before[0] + 1
    await store.end_session("key:s", why="", at_s=1.0)
    assert await store.seen.stamp() != after


async def test_what_learning_took_is_summed_and_runs_come_oldest_first(tmp_path: Path) -> None:
    await lived_in(tmp_path)
    store = await Store.open(tmp_path)
    assert await store.seen.spent() == {"steps": 2, "seconds": 2.0, "tokens": 0.0}
    assert await store.seen.runs(limit=5) == []
    await store.aclose()


async def test_lists_go_by_an_index(tmp_path: Path) -> None:
    await lived_in(tmp_path)
    sql = sqlite3.connect(tmp_path / "store.db")
    asked = {
        "SELECT id FROM sessions WHERE (seen_s, id) < (5.0, 'a') ORDER BY seen_s DESC, id DESC": "sessions_seen",
        "SELECT count(*) FROM verdicts WHERE score = -1 AND seq >= 1 AND seq < 9": "COVERING INDEX verdicts_scored",
        "SELECT turn FROM overrules WHERE turn = 'a' ORDER BY seq": "overrules_turn",
    }
    for question, index in asked.items():
        plan = " ".join(str(row[3]) for row in sql.execute(f"EXPLAIN QUERY PLAN {question}"))
        assert index in plan and "TEMP B-TREE" not in plan, plan
    sql.close()


async def test_a_wish_learned_from_the_reply_that_was_accepted_is_told_in_the_words_of_the_correction_before_it(
    store: Store, tmp_path: Path
) -> None:
    wish = "Write plain sentences without markdown."
    await judged(store, "else", -1, "Name the year.", said="And the year?", session="key:both")
    await judged(store, "wrong", -1, wish, said="No markdown, please!", session="key:both")
    await judged(store, "later", -1, "Be kind.", said="Be nice.", session="key:both")
    await judged(store, "other", -1, wish, said="no stars", session="key:elsewhere")
    accepted = a_turn("good", session="key:both")
    await store.add_turn(accepted, chain="good", prefix="good")
    await store.pair(NextState("good", (message(Role.USER, "Thanks!"),), NextStateSource.USER))
    await store.judge(Verdict("good", 1, VerdictSource.VOTES))
    lesson = replace(a_sample(accepted, score=None), is_taught=True, hints=(HintPrompt(wish, (1, 2)),))
    await store.admit(lesson)
    await add_version(store, tmp_path, 1, a_small_adapter, ("good", "wrong"))
    await store.set_current(ONE, why="")
    (learned,) = await store.effects.taught()
    assert (learned.words, learned.hint, learned.turns) == ("No markdown, please!", wish, ("wrong",))


async def test_answered_requests_are_told_newest_first_without_side_turns_and_steps(store: Store) -> None:
    await judged(store, "a", -1)
    await judged(store, "b", 1, version=ONE)
    await store.add_turn(a_turn("side", session="key:a", kind=TurnKind.SIDE), chain="side")
    await store.episodes.begin(Episode("key:try", "alice", "pens", 1000.0))
    await store.add_turn(replace(a_turn("step", session="key:try"), step=EpisodeStep("key:try", 0)), chain="step")
    await store.add_turn(a_turn("c", session="key:c", version=ONE), chain="c")
    found = await store.effects.answered(limit=9)
    assert [(one.turn, one.session, one.version, one.state, one.score) for one in found] == [
        ("c", "key:c", ONE, State.SERVED, None),
        ("b", "key:b", ONE, State.READY, 1),
        ("a", "key:a", BASE, State.READY, -1),
    ]
    assert [one.turn for one in await store.effects.answered(limit=1)] == ["c"]
