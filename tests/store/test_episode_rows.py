"""Episodes as rows: their turns wait for them, and whatever takes rows out, looks at them or mends them knows them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from forget_doubles import holds, stepped
from older_stores import take_back

from openclaw_rl.core.episode import Episode, EpisodeEnd, EpisodeStep, FailureClass
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.sample import Outcome, Peer
from openclaw_rl.errors import RequestError
from openclaw_rl.runtime.serving import DAY_S, retain
from openclaw_rl.store.connection import open_writer
from openclaw_rl.store.db import Store
from openclaw_rl.store.export import record_of
from openclaw_rl.store.forget.erase import compact
from openclaw_rl.store.forget.selection import ForgetTarget
from openclaw_rl.store.mend.check import check_rows
from openclaw_rl.store.mend.salvage import salvage
from openclaw_rl.store.redact.masker import Masker
from openclaw_rl.store.settings import Redact
from openclaw_rl.testing.turns import a_sample, a_turn

GOOD = EpisodeEnd(1.0, why="all tests passed")
SEEN = (message(Role.USER, "exit status 1"),)


async def begun(store: Store, name: str, *, user: str = "alice", group: str = "g", task: str = "pens") -> None:
    await store.episodes.begin(
        Episode(f"key:{name}", user, task, 1000.0, group=group, group_size=2, seed=7, environment="toy")
    )


async def stepping(
    store: Store, name: str, index: int, turn: str = "", *, user: str = "alice", prefix: str = ""
) -> str:
    """A turn that is this step; gives its id."""
    made = a_turn(turn or f"{name}{index}", f"{name} is shown {index}", session=f"key:{name}", user=user, at_s=1000.0)
    whole = replace(made, step=EpisodeStep(f"key:{name}", index, "terminal"))
    await store.add_turn(whole, chain=made.id, prefix=prefix or f"asked {made.id}", seen_s=1000.0)
    return made.id


async def settled(store: Store, *names: str, user: str = "alice", task: str = "pens") -> None:
    """Episodes of one step each that are samples of each other's peers."""
    for name in names:
        await begun(store, name, user=user, task=task)
        await stepping(store, name, 0, user=user)
        await store.episodes.end(f"key:{name}", GOOD, at_s=1001.0)
    peers = tuple(Peer(f"{name}0", 1.0, None, shared=2) for name in names)
    for name in names:
        turn = await store.turn(f"{name}0")
        assert turn is not None
        sample = replace(a_sample(turn, score=None), outcome=Outcome(1.0, True), peers=peers)
        assert await store.episodes.settle(f"key:{name}", [(sample, ("shared",))], [])


async def state(store: Store, turn: str) -> str:
    row = await store.row(turn)
    assert row is not None
    return str(row.reason or row.state)


async def test_a_step_waits_for_its_episode_and_neither_for_a_judge_nor_for_its_session(store: Store) -> None:
    await begun(store, "a")
    first, second = await stepping(store, "a", 0), await stepping(store, "a", 1)
    assert await store.episodes.observe("key:a", 1, SEEN, after=first)
    assert await store.paired(limit=9) == []  # its next state is no opinion
    await store.end_session("key:a", why="idle", at_s=2000.0)
    assert [await state(store, turn) for turn in (first, second)] == ["paired", "served"]
    row = await store.episodes.end("key:a", GOOD, at_s=2001.0)
    assert row.episode.reward == 1.0 and [step.state for step in row.steps] == [State.JUDGED] * 2
    assert await store.judged(limit=9) == []
    shown = [(await store.row(turn)) for turn in (first, second)]
    texts = [one.next_state.text for one in shown if one is not None and one.next_state is not None]
    assert texts == ["exit status 1", "(the episode ended: outcome 1; all tests passed)"]
    assert (await store.counts())["main"] == 2


async def test_an_end_told_twice_changes_nothing_and_another_one_is_refused(store: Store) -> None:
    await begun(store, "a")
    first = await store.episodes.end("key:a", GOOD, at_s=5.0)
    assert await store.episodes.end("key:a", GOOD, at_s=9.0) == first
    with pytest.raises(RequestError, match="has ended already"):
        await store.episodes.end("key:a", EpisodeEnd(0.0), at_s=9.0)
    with pytest.raises(RequestError, match="there is no episode key:b"):
        await store.episodes.end("key:b", GOOD, at_s=9.0)
    late = await stepping(store, "a", 0)  # was being answered when the end came
    assert await state(store, late) == "no_next_state"


async def test_begun_again_it_is_the_same_and_another_task_under_its_id_is_refused(store: Store) -> None:
    await begun(store, "a")
    await stepping(store, "a", 0)
    again = await store.episodes.begin(Episode("key:a", "alice", "pens", 5.0, group="g"))
    assert again.episode.begun_s == 1000.0 and len(again.steps) == 1
    with pytest.raises(RequestError, match="exists already"):
        await store.episodes.begin(Episode("key:a", "alice", "nuts", 5.0, group="g"))


async def test_of_several_answers_to_a_step_only_the_followed_one_is_judged(store: Store) -> None:
    await begun(store, "a")
    for turn in ("one", "two"):
        await stepping(store, "a", 0, turn, prefix="the same")
    assert await store.episodes.next_index("key:a", "the same") == 0
    assert await store.episodes.next_index("key:a", "another") == 1
    assert await store.episodes.observe("key:a", 1, SEEN, after="one")
    assert not await store.episodes.observe("key:a", 1, SEEN)  # what followed is known, and two is not it
    for turn in ("three", "four"):
        await stepping(store, "a", 1, turn)
    await store.episodes.end("key:a", GOOD, at_s=5.0)
    found = [await state(store, turn) for turn in ("one", "two", "three", "four")]
    assert found == ["judged", "not_followed", "not_followed", "judged"]


async def test_a_step_is_scored_and_what_it_was_shown_is_noted(store: Store) -> None:
    await begun(store, "a")
    turn = await stepping(store, "a", 0)
    assert await store.episodes.report_step("key:a", 0, score=0.5, shown=SEEN) == (turn,)
    row = await store.row(turn)
    assert row is not None and row.step_score == 0.5 and row.next_state is not None
    assert row.next_state.text == "exit status 1" and row.episode is not None and row.episode.seed == 7
    with pytest.raises(RequestError, match="has taken no step 3"):
        await store.episodes.report_step("key:a", 3, score=1.0)
    record = record_of(row, 1, None)["episode"]
    assert record == {
        "id": "key:a",
        "step": 0,
        "observation": "terminal",
        "score": 0.5,
        "task": "pens",
        "group": "g",
        "seed": 7,
        "environment": "toy",
        "outcome": None,
        "failure": "none",
    }


async def test_a_masked_failure_has_no_reward_whatever_outcome_is_reported(store: Store) -> None:
    ends = {
        "a": EpisodeEnd(0.0, FailureClass.INFRASTRUCTURE),
        "b": EpisodeEnd(None, FailureClass.ENVIRONMENT),
        "c": EpisodeEnd(None, FailureClass.AGENT),
    }
    for name, end in ends.items():
        await begun(store, name)
        await store.episodes.end(f"key:{name}", end, at_s=5.0)
    rows = {row.episode.id: row.episode for row in await store.episodes.page(limit=9)}
    assert [rows[f"key:{name}"].reward for name in "abc"] == [None, None, 0.0]
    with pytest.raises(ValueError, match="has an outcome"):
        EpisodeEnd(None)
    with pytest.raises(ValueError, match="finite"):
        EpisodeEnd(float("nan"))


async def test_a_forgotten_episode_leaves_nothing_and_its_peers_no_longer_count_it(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    await settled(store, "quokka", "b", "c")
    await stepped(store, 1, "b0", "c0")
    going = await store.forgettings.preview(ForgetTarget(episode="quokka"))
    assert going.episodes == ("key:quokka",) and going.turns == ("quokka0",)
    assert going.thinned == ("b0", "c0") and [str(row.version) for row in going.versions] == ["shared.1"]
    await store.forgettings.begin(ForgetTarget(episode="quokka"), name="f", at_s=5.0, planned=lambda sql, going: "{}")
    samples = await store.effects.samples(["b0", "c0"])
    assert [[peer.turn for peer in sample.peers] for sample in samples] == [["b0", "c0"]] * 2
    assert all(peer.shared == 2 for sample in samples for peer in sample.peers)
    assert await store.episodes.get("key:quokka") is None
    assert not await store.add_turn(  # it was being answered meanwhile
        replace(a_turn("late", session="key:other"), step=EpisodeStep("key:quokka", 1)), chain="late"
    )
    await store.aclose()
    compact(tmp_path / "store.db")
    assert holds(tmp_path, "quokka") == []


async def test_who_is_forgotten_takes_episodes_along_also_those_without_a_turn(store: Store) -> None:
    await settled(store, "a")
    await begun(store, "numbat", user="bob")
    await stepping(store, "numbat", 0, user="bob")
    await begun(store, "idle", user="bob")
    await store.forgettings.begin(ForgetTarget(user="bob"), name="f", at_s=5.0, planned=lambda sql, going: "{}")
    assert [row.episode.id for row in await store.episodes.page(limit=9)] == ["key:a"]


async def test_old_episodes_go_with_their_last_turn(store: Store) -> None:
    await settled(store, "a")
    await stepped(store, 1, "a0")
    await begun(store, "b")
    await stepping(store, "b", 0)
    for name in "ab":
        await store.end_session(f"key:{name}", why="idle", at_s=2000.0)
    assert await retain(store, 1.0, now_s=lambda: 9 * DAY_S) == 1
    assert [row.episode.id for row in await store.episodes.page(limit=9)] == ["key:b"]  # it waits for its end


@pytest.mark.parametrize(
    ("harm", "what", "after"),
    [
        ("PRAGMA foreign_keys=OFF; DELETE FROM episode_steps", "is not there", {"a0": "damaged", "b0": "damaged"}),
        (
            "UPDATE episodes SET outcome = 'good' WHERE id = 'key:a'",
            "episode key:a: ",
            {"a0": "damaged", "b0": "paired"},
        ),
        ("UPDATE episodes SET state = 'settled', ended_s = 1 WHERE id = 'key:b'", "is settled, but turn b0", {}),
    ],
)
async def test_a_broken_episode_is_found_and_mended(
    tmp_path: Path, harm: str, what: str, after: dict[str, str]
) -> None:
    store = await Store.open(tmp_path)
    for name in "ab":
        await begun(store, name)
        await stepping(store, name, 0)
        await store.episodes.report_step(f"key:{name}", 0, score=None, shown=SEEN)
    await store.aclose()
    with closing(open_writer(tmp_path / "store.db")) as sql:
        assert check_rows(sql, repair=False) == []
        sql.executescript(harm)
        found = check_rows(sql, repair=True)
        assert any(what in one.what and one.is_mended for one in found), found
        assert check_rows(sql, repair=False) == []
        rows = sql.execute("SELECT id, coalesce(reason, state) FROM turns").fetchall()
    assert len(rows) == 2 and after.items() <= {str(turn): str(stands) for turn, stands in rows}.items()
    again = await Store.open(tmp_path)
    if not after:
        row = await again.episodes.get("key:b")
        assert row is not None and row.episode.state == "ended"
    await again.aclose()


async def test_what_can_be_read_of_a_damaged_store_keeps_its_episodes(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    await settled(store, "a", "b")
    await store.aclose()
    salvage(tmp_path, tmp_path / "store.db", at_s=5.0)
    again = await Store.open(tmp_path)
    rows = await again.episodes.page(limit=9)
    assert [(row.episode.id, row.episode.outcome, len(row.steps)) for row in rows] == [
        ("key:b", 1.0, 1),
        ("key:a", 1.0, 1),
    ]
    (sample,) = await again.effects.samples(["a0"])
    assert [peer.turn for peer in sample.peers] == ["a0", "b0"]
    await again.aclose()


async def test_a_store_that_knew_of_no_episodes_keeps_its_turns_and_takes_them_on(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    await store.add_turn(a_turn("before"), chain="before")
    await store.aclose()
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as sql:
        take_back(sql, 11)
    again = await Store.open(tmp_path)
    turn = await again.turn("before")
    assert turn is not None and turn.step is None
    await settled(again, "a")
    assert (await again.episodes.counts())["settled"] == 1
    await again.aclose()


async def test_what_is_private_in_a_task_or_a_grade_is_masked(tmp_path: Path) -> None:
    secret = "sk-proj-" + "Ab3dEf6hIj9kLm2nOp5q" * 2
    store = await Store.open(tmp_path, masker=Masker.of((Redact.KEYS,)))
    await begun(store, "a", task=f"use {secret}")
    await store.episodes.end("key:a", EpisodeEnd(1.0, why=f"printed {secret}"), at_s=5.0)
    await store.aclose()
    assert holds(tmp_path, secret) == []


async def test_the_ledger_adds_up_with_every_reason_of_episodes(store: Store) -> None:
    await begun(store, "a")
    turn = await stepping(store, "a", 0)
    await store.episodes.end("key:a", EpisodeEnd(None, FailureClass.ENVIRONMENT), at_s=5.0)
    assert await store.episodes.settle("key:a", [], [(turn, DropReason.ENVIRONMENT_FAILED)])
    counts = await store.counts()
    assert counts["dropped.environment_failed"] == 1 and counts["main"] == sum(counts[one.value] for one in State)
