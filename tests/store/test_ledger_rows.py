"""Pairing, feedback, the end of a session, and who is woken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from store_doubles import paired_and_judged, ready, said

from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.manifest import version_folder
from openclaw_rl.core.next_state import Feedback
from openclaw_rl.core.turn import Session, TurnKind
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import StepRecord, VersionRow, VersionStatus
from openclaw_rl.testing.turns import a_sample, a_turn


async def _state(store: Store, turn: str) -> tuple[State | None, DropReason | None]:
    row = await store.row(turn)
    assert row is not None
    return row.state, row.reason


async def test_a_pair_is_made_once(store: Store) -> None:
    await store.add_turn(a_turn("t"), chain="c")
    assert await store.pair(said("t", "first"))
    assert not await store.pair(said("t", "second"))
    ((_, next_state, feedback),) = await store.paired(limit=5)
    assert (next_state.text, feedback) == ("first", None)
    with pytest.raises(ValueError, match="there is no turn"):
        await store.pair(said("nobody"))


async def test_turns_whose_judging_failed_come_after_the_others_and_are_not_read_for_nothing(store: Store) -> None:
    for name in "abcd":
        await store.add_turn(a_turn(name), chain=name)
        await store.pair(said(name))
    for limit, failed, wanted in (
        (2, {}, "ab"),
        (2, {"a": 1}, "bc"),
        (1, {"a": 1, "b": 3, "c": 2}, "d"),
        (3, {"a": 2, "b": 1, "c": 3, "d": 9}, "bac"),
        (2, {"a": 1, "gone": 5}, "bc"),
    ):
        rows = await store.paired(limit=limit, failed=failed)
        assert "".join(turn.id for turn, _, _ in rows) == wanted


async def test_a_side_turn_never_moves(store: Store) -> None:
    await store.add_turn(a_turn("t", kind=TurnKind.SIDE), chain="c")
    assert not await store.pair(said("t"))
    assert not await store.drop("t", DropReason.STALE)
    await store.add_feedback(Feedback("t", 1, "good", 1.0))
    await store.end_session("key:s", why="done", at_s=2.0)
    assert await _state(store, "t") == (None, None)
    with pytest.raises(ValueError, match="side turn"):
        await store.add_turn(a_turn("u", kind=TurnKind.SIDE), chain="c", reason=DropReason.LOOP)


async def test_words_of_feedback_are_the_next_state_of_a_turn_that_waits_for_one(store: Store) -> None:
    await store.add_turn(a_turn("t"), chain="c")
    await store.add_feedback(Feedback("t", -1, "shorter, please", 3.0))
    ((_, next_state, feedback),) = await store.paired(limit=5)
    assert next_state.text == "shorter, please"
    assert feedback == Feedback("t", -1, "shorter, please", 3.0)


async def test_a_bare_thumb_waits_for_words_and_counts_at_the_end(store: Store) -> None:
    for name in ("thumb", "neither", "none"):
        await store.add_turn(a_turn(name), chain=name)
    await store.add_feedback(Feedback("thumb", -1, None, 3.0))
    await store.add_feedback(Feedback("neither", 0, " ", 3.0))
    assert await _state(store, "thumb") == (State.SERVED, None)
    await store.end_session("key:s", why="done", at_s=4.0)
    ((turn, next_state, feedback),) = await store.paired(limit=5)
    assert (turn.id, next_state.text) == ("thumb", "(the user marked this reply as bad)")
    assert feedback == Feedback("thumb", -1, None, 3.0)
    assert await _state(store, "neither") == (State.DROPPED, DropReason.NO_NEXT_STATE)
    assert await _state(store, "none") == (State.DROPPED, DropReason.NO_NEXT_STATE)


async def test_a_sibling_that_was_not_gone_on_from_is_told_apart_at_the_end(store: Store) -> None:
    await store.add_turn(a_turn("first"), chain="1", prefix="asked")
    await store.add_turn(a_turn("again"), chain="2", prefix="asked")
    await store.add_turn(a_turn("elsewhere", session="key:other"), chain="3", prefix="asked")
    await store.add_turn(a_turn("last"), chain="4", prefix="asked later")
    await store.pair(said("again"))
    await store.end_session("key:s", why="done", at_s=4.0)
    await store.end_session("key:s", why="twice", at_s=5.0)
    await store.end_session("key:other", why="done", at_s=4.0)
    await store.end_session("never seen", why="done", at_s=4.0)
    assert await _state(store, "first") == (State.DROPPED, DropReason.NOT_FOLLOWED)
    assert await _state(store, "again") == (State.PAIRED, None)
    assert await _state(store, "elsewhere") == (State.DROPPED, DropReason.NO_NEXT_STATE)
    assert await _state(store, "last") == (State.DROPPED, DropReason.NO_NEXT_STATE)


async def test_a_session_is_open_until_it_ends_and_again_when_it_goes_on(store: Store) -> None:
    await store.see_session(Session("a", "alice", "default", 10.0, 10.0))
    await store.see_session(Session("a", "bob", "other", 50.0, 20.0))
    await store.see_session(Session("b", "bob", "default", 15.0, 15.0))
    assert await store.open_sessions(seen_before_s=15.0) == []
    assert await store.open_sessions(seen_before_s=20.5) == [
        Session("b", "bob", "default", 15.0, 15.0),
        Session("a", "alice", "default", 10.0, 20.0),
    ]
    await store.end_session("b", why="idle", at_s=30.0)
    assert [session.id for session in await store.open_sessions(seen_before_s=99.0)] == ["a"]
    await store.add_turn(a_turn("t", session="b", at_s=40.0), chain="c", seen_s=45.0)
    assert [session.seen_s for session in await store.open_sessions(seen_before_s=99.0)] == [20.0, 45.0]


async def test_a_move_wakes_whoever_waits_for_its_state(store: Store) -> None:
    assert not await store.wait(State.SERVED, timeout_s=0.0)
    await store.add_turn(a_turn("t"), chain="c")
    assert await store.wait(State.SERVED, timeout_s=9.0)
    assert not await store.wait(State.SERVED, timeout_s=0.0)  # told once
    assert not await store.wait(State.PAIRED, timeout_s=0.0)
    await store.pair(said("t"))
    assert await store.wait(State.PAIRED, timeout_s=9.0)
    with pytest.raises(ValueError, match="from paired to ready"):
        await store.admit(a_sample(a_turn("t")))
    assert not await store.wait(State.READY, timeout_s=0.0)  # a move that failed wakes nobody


async def test_turns_are_listed_newest_first_a_page_at_a_time(store: Store) -> None:
    for number in range(7):
        await store.add_turn(a_turn(f"t{number}", session=f"s{number % 2}"), chain="same")
    await store.pair(said("t4"))
    page = await store.rows(limit=3)
    assert [row.turn.id for row in page] == ["t6", "t5", "t4"]
    assert [row.turn.id for row in await store.rows(limit=9, before="t4")] == ["t3", "t2", "t1", "t0"]
    assert [row.turn.id for row in await store.rows(session="s1")] == ["t5", "t3", "t1"]
    assert [row.turn.id for row in await store.rows(state=State.PAIRED)] == ["t4"]
    assert [row.turn.id for row in await store.history(limit=2, after="t1", user="alice")] == ["t2", "t3"]
    assert [row.turn.id for row in await store.history(session="s0")] == ["t0", "t2", "t4", "t6"]
    assert (await store.served(["same"]))[-1].turn == "t6"
    assert await store.served(["other"]) == []
    await store.add_turn(a_turn("side", session="s1", kind=TurnKind.SIDE), chain="d")
    last = await store.last_turn("s1")
    assert last is not None
    assert last.id == "t5"
    assert await store.last_turn("s9") is None
    assert await store.row("t9") is None
    assert [(item.turn, item.state) for item in await store.served(["d", "x"])] == [("side", None)]


async def test_rewards_are_the_users_own_newest_first_and_none_is_not_nought(store: Store) -> None:
    await paired_and_judged(store, "a", score=1)
    await paired_and_judged(store, "b", score=None)
    await paired_and_judged(store, "c", score=0)
    await paired_and_judged(store, "d", score=-1)
    await store.add_turn(a_turn("e", user="bob"), chain="e")
    await store.pair(said("e"))
    await store.judge(Verdict("e", 1, VerdictSource.VOTES))
    assert await store.rewards("alice", limit=9) == (-1.0, 0.0, 1.0)
    assert await store.rewards("alice", limit=2) == (-1.0, 0.0)
    assert await store.rewards("carol", limit=2) == ()


async def test_a_session_has_a_sample_once_one_is_ready_and_still_when_it_is_trained(store: Store) -> None:
    await paired_and_judged(store, "a", session="s")
    assert not await store.session_has_sample("s")
    await ready(store, "b", session="s")
    assert await store.session_has_sample("s")
    assert not await store.session_has_sample("other")
    await store.commit_step(StepRecord("1", 0.0, 1.0, ("b",), (), {}, None))
    assert await store.session_has_sample("s")


async def test_a_version_is_made_by_its_step_passes_the_gate_and_is_served(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    await ready(store, "a", "b", "c")
    first = PolicyVersion("shared", 1)
    made = VersionRow(
        first,
        BASE,
        version_folder(tmp_path, first),
        "digest",
        VersionStatus.CANDIDATE,
        "step 1",
        5.0,
        ("a", "b"),
        {"loss": 0.5},
    )
    dropped = (("c", DropReason.NOT_FINITE),)
    await store.commit_step(StepRecord("1", 1.0, 2.0, ("a", "b"), dropped, {"loss": 0.5}, made))
    assert (await store.versions())[1] == made
    with pytest.raises(ValueError, match="is candidate and cannot be served"):
        await store.set_current(first, why="early")
    await store.settle(first, VersionStatus.LIVE, "passed", {"kl": 0.01})
    await store.set_current(first, why="passed")
    await store.aclose()
    store = await Store.open(tmp_path)
    assert await store.current("shared") == first
    assert await store.current("alice") == PolicyVersion("alice", 0)
    row = (await store.versions())[1]
    assert (row.status, row.why, row.metrics) == (VersionStatus.LIVE, "passed", {"loss": 0.5, "kl": 0.01})
    assert await _state(store, "c") == (State.DROPPED, DropReason.NOT_FINITE)
    trained = await store.row("a")
    assert trained is not None
    assert (trained.step, trained.trained_version) == ("1", first)
    await store.set_current(BASE, why="rolled back")
    assert await store.current("shared") == BASE
    for refused in (PolicyVersion("shared", 2), PolicyVersion("alice", 1)):
        with pytest.raises(ValueError, match="is unknown and cannot be served"):
            await store.set_current(refused, why="")
        with pytest.raises(ValueError, match="there is no version"):
            await store.settle(refused, VersionStatus.LIVE, "", {})
    await store.aclose()


async def test_a_version_never_changes_hands(store: Store, tmp_path: Path) -> None:
    row = VersionRow(
        PolicyVersion("shared", 1), BASE, tmp_path / "versions" / "shared.1", "one", VersionStatus.CANDIDATE, "", 5.0
    )
    with pytest.raises(ValueError, match="is live before it met the gate"):
        await store.commit_step(StepRecord("1", 1.0, 2.0, (), (), {}, replace(row, status=VersionStatus.LIVE)))
    await store.commit_step(StepRecord("1", 1.0, 2.0, (), (), {}, row))
    with pytest.raises(ValueError, match="exists already"):
        await store.commit_step(StepRecord("2", 1.0, 2.0, (), (), {}, row))
    assert [each.digest for each in await store.versions()] == ["", "one"]
