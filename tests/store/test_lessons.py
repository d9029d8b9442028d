"""A sample trains each scope it belongs to once; its turn ends when the last of them has settled it."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from older_stores import take_back
from store_doubles import paired_and_judged

from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.sample import HintPrompt
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.store import connection
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import StepRecord, VersionRow, VersionStatus
from openclaw_rl.testing.turns import a_sample, a_turn

ANN = "user-ann"
BOTH = ("shared", ANN)


async def admit(store: Store, name: str, *scopes: str) -> None:
    await paired_and_judged(store, name)
    await store.admit(a_sample(a_turn(name)), scopes=scopes)


async def train(store: Store, step: str, scope: str, *turns: str, dropped: tuple[str, ...] = ()) -> None:
    given_up = tuple((turn, DropReason.TRAINER_FAILED) for turn in dropped)
    await store.commit_step(StepRecord(step, 0.0, 1.0, turns, given_up, {}, None, scope))


async def stands(store: Store, name: str) -> tuple[State | None, DropReason | None, str | None]:
    row = await store.row(name)
    assert row is not None
    return row.state, row.reason, row.step


async def waiting(store: Store, scope: str) -> list[str]:
    return [sample.turn for sample in await store.ready(limit=9, scope=scope)]


async def test_a_turn_of_two_scopes_is_trained_when_both_have_learned_from_it(store: Store) -> None:
    await admit(store, "a", *BOTH)
    assert await store.waiting_scopes() == ["shared", ANN]
    await train(store, "1", "shared", "a")
    assert await stands(store, "a") == (State.READY, None, "1")
    assert (await waiting(store, "shared"), await waiting(store, ANN)) == ([], ["a"])
    await train(store, "2", ANN, "a")
    assert await stands(store, "a") == (State.TRAINED, None, "2")
    assert await store.waiting_scopes() == []


async def test_no_scope_is_trained_by_a_turn_twice_or_by_one_of_others(store: Store) -> None:
    await admit(store, "a", *BOTH)
    await train(store, "1", "shared", "a")
    for scope in ("shared", "user-bob"):
        with pytest.raises(ValueError, match=f"does not wait to train scope {scope}"):
            await train(store, "2", scope, "a")
    await admit(store, "mine", ANN)
    assert await waiting(store, "shared") == []


async def test_a_turn_one_scope_gave_up_is_trained_if_another_learned_from_it(store: Store) -> None:
    await admit(store, "a", *BOTH)
    await train(store, "1", "shared", "a")
    assert await store.drop("a", DropReason.STALE, scope=ANN)
    assert await stands(store, "a") == (State.TRAINED, None, "1")
    assert not await store.drop("a", DropReason.STALE, scope=ANN)
    await admit(store, "b", *BOTH)
    await train(store, "2", "shared", dropped=("b",))
    assert await stands(store, "b") == (State.READY, None, "2")
    await train(store, "3", ANN, "b")
    assert await stands(store, "b") == (State.TRAINED, None, "3")


async def test_a_turn_that_taught_no_scope_is_dropped_with_the_last_reason(store: Store) -> None:
    await admit(store, "a", *BOTH)
    assert await store.drop("a", DropReason.STALE, scope="shared")
    assert (await stands(store, "a"))[0] is State.READY
    assert await store.drop("a", DropReason.NOT_FINITE, scope=ANN)
    assert (await stands(store, "a"))[:2] == (State.DROPPED, DropReason.NOT_FINITE)
    await admit(store, "b", *BOTH)
    assert await store.drop("b", DropReason.FORGOTTEN)
    assert (await stands(store, "b"))[:2] == (State.DROPPED, DropReason.FORGOTTEN)
    assert await store.waiting_scopes() == []


async def test_the_scope_whose_oldest_sample_waits_longest_comes_first(store: Store) -> None:
    await admit(store, "a", "user-bob")
    await admit(store, "b", *BOTH)
    await admit(store, "c", "user-bob")
    assert await store.waiting_scopes() == ["user-bob", "shared", ANN]
    await train(store, "1", "user-bob", "a")
    assert await store.waiting_scopes() == ["shared", ANN, "user-bob"]


async def test_a_version_tells_what_it_stands_on_and_a_step_makes_none_of_another_scope(store: Store) -> None:
    own, below = PolicyVersion(ANN, 1), PolicyVersion("shared", 3)
    row = VersionRow(own, PolicyVersion(ANN, 0), None, "", VersionStatus.CANDIDATE, "", 1.0, upon=below)
    with pytest.raises(ValueError, match=r"cannot make version user-ann\.1"):
        StepRecord("1", 0.0, 1.0, (), (), {}, row)
    await store.commit_step(StepRecord("1", 0.0, 1.0, (), (), {}, row, ANN))
    assert await store.version(own) == row
    assert await store.versions_of(ANN) == [row]
    assert [found.upon for found in await store.versions_of("shared")] == [None]


async def test_rows_of_a_scope_are_those_of_its_owner(store: Store) -> None:
    for name, user in (("a", "ann"), ("b", "bob"), ("c", "ann")):
        await store.add_turn(a_turn(name, user=user), chain=name)
    assert [row.turn.id for row in await store.rows(scope=ANN)] == ["c", "a"]
    assert [row.turn.id for row in await store.rows(scope="shared")] == ["c", "b", "a"]
    agent = a_turn("x").agent
    assert {row.turn.id for row in await store.rows(scope=f"agent-{agent}")} == {"a", "b", "c"}
    assert await store.rows(scope="agent-other") == []


async def test_of_what_rode_along_the_newest_of_each_kind_are_looked_back_on(store: Store) -> None:
    async def rehearse(
        name: str, *scopes: str, rehearses: tuple[str, ...] = (), score: float = 0.0, hint: str = "",
        is_promoted: bool = True,
    ) -> None:  # fmt: skip
        await paired_and_judged(store, name)
        hints = tuple(HintPrompt(words, (1, 2)) for words in (hint or " ".join(rehearses),) if words)
        made = replace(a_sample(a_turn(name), score=score), rehearses=rehearses, hints=hints)
        await store.admit(replace(made, is_promoted=is_promoted), scopes=scopes)

    for name in ("a", "b", "c"):
        await rehearse(name, "shared", rehearses=("Be brief.",))
    await rehearse("other", "shared", rehearses=("Be kind.",))
    await rehearse("taught", "shared", is_promoted=False)
    await rehearse("praised", "shared", score=1 / 3)  # a score counts once
    await rehearse("told", "shared", hint="Be brief.")  # so does a hint
    await rehearse("mine", ANN)
    await rehearse("waits", "shared")
    await rehearse("given up", "shared")
    assert await store.rehearsed(scope="shared", most=2) == []
    await train(store, "1", "shared", "a", "b", "c", "other", "taught", "praised", "told", dropped=("given up",))
    await train(store, "2", ANN, "mine")
    rehearsed = await store.rehearsed(scope="shared", most=2)
    assert [sample.turn for sample, _ in rehearsed] == ["b", "c", "other"]
    told = await store.turn("b")
    assert told is not None and rehearsed[0][1] == told.at_s and rehearsed[0][0].rehearses == ("Be brief.",)
    assert [sample.turn for sample, _ in await store.rehearsed(scope=ANN, most=2)] == ["mine"]


async def test_samples_of_an_older_store_wait_for_the_shared_scope(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    for name in ("waits", "trained", "dropped"):
        await admit(store, name, "shared")
    await train(store, "1", "shared", "trained", dropped=("dropped",))
    await store.aclose()
    older = sqlite3.connect(tmp_path / connection.NAME)
    take_back(older, 2)
    older.close()
    again = await Store.open(tmp_path)
    assert (await waiting(again, "shared"), await again.waiting_scopes()) == (["waits"], ["shared"])
    with pytest.raises(ValueError, match="does not wait"):
        await train(again, "2", "shared", "trained")
    await train(again, "3", "shared", "waits")
    assert (await stands(again, "waits"))[0] is State.TRAINED
    await again.aclose()
