"""Pins and freezing are kept, and a pin tells where training goes on from."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.core.version import BASE, SHARED, PolicyVersion
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import StepRecord, VersionRow, VersionStatus
from openclaw_rl.store.tables.effects import CorrectionRecord, TurnLesson
from openclaw_rl.testing.turns import a_turn

ONE, TWO, THREE = (PolicyVersion(SHARED, number) for number in (1, 2, 3))


async def made(store: Store, version: PolicyVersion, parent: PolicyVersion, *, live: bool = True) -> VersionRow:
    row = VersionRow(version, parent, None, "d", VersionStatus.CANDIDATE, "", 1.0)
    await store.commit_step(StepRecord(f"step {version}", 1.0, 2.0, (), (), {}, row))
    if live:
        await store.settle(version, VersionStatus.LIVE, "passed", {})
        await store.set_current(version, why="passed")
    return row


async def test_behind_a_pin_training_goes_on_and_what_it_came_to_is_served_when_the_pin_is_lifted(
    tmp_path: Path,
) -> None:
    store = await Store.open(tmp_path)
    await made(store, ONE, BASE)
    await made(store, TWO, ONE)
    await store.orders.pin(ONE, at_s=5.0)
    assert (await store.current(SHARED), await store.orders.head(SHARED)) == (ONE, TWO)
    row = await made(store, THREE, TWO, live=False)
    await store.orders.pass_behind_pin(row, why="not served", metrics={"gate_kl": 0.5})
    assert (await store.current(SHARED), await store.orders.head(SHARED)) == (ONE, THREE)
    await store.aclose()
    again = await Store.open(tmp_path)
    assert await again.orders.pins() == {SHARED: ONE}
    assert await again.orders.pinned("user-ann") is None
    assert await again.orders.unpin(SHARED) == THREE
    assert (await again.current(SHARED), await again.orders.head(SHARED)) == (THREE, THREE)
    assert await again.orders.unpin(SHARED) is None
    await again.aclose()


async def test_pinning_what_is_served_leaves_training_where_it_is(store: Store) -> None:
    await made(store, ONE, BASE)
    await store.orders.pin(ONE, at_s=5.0)
    assert await store.orders.head(SHARED) == ONE
    await store.orders.pin(BASE, at_s=6.0)
    assert (await store.current(SHARED), await store.orders.head(SHARED)) == (BASE, ONE)


async def test_a_version_that_never_passed_cannot_be_pinned(store: Store) -> None:
    await made(store, ONE, BASE, live=False)
    with pytest.raises(ValueError, match="cannot be served"):
        await store.orders.pin(ONE, at_s=5.0)
    assert (await store.orders.pins(), await store.current(SHARED)) == ({}, BASE)


async def test_freezing_is_kept_until_it_is_lifted(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    assert await store.orders.frozen_since_s() is None
    await store.orders.freeze(at_s=5.0)
    await store.orders.freeze(at_s=9.0)
    await store.aclose()
    again = await Store.open(tmp_path)
    assert await again.orders.frozen_since_s() == 5.0
    assert await again.orders.unfreeze()
    assert not await again.orders.unfreeze()
    assert await again.orders.frozen_since_s() is None
    await again.aclose()


async def test_outcomes_are_the_scored_turns_in_the_order_they_were_served(store: Store) -> None:
    for name in ("a", "b", "c"):
        await store.add_turn(a_turn(name), chain=name)
        await store.pair(NextState(name, (message(Role.USER, "and?"),), NextStateSource.USER))
    before = await store.effects.last_judged()
    for name, score in (("b", -1), ("a", 1), ("c", None)):
        await store.judge(Verdict(name, score, VerdictSource.VOTES))
    version = a_turn("a").completion.version
    assert await store.effects.outcomes() == [
        CorrectionRecord("a", version, False, 1),
        CorrectionRecord("b", version, True, 2),
    ]
    assert await store.effects.last_judged() == before + 3
    assert await store.effects.samples(["a"]) == []
    assert await store.effects.lessons(["a", "gone"]) == {"a": TurnLesson((), 1, False)}
    assert [TurnLesson((), score, False).kind for score in (-1, 0, 1, None)] == [
        "corrected",
        "others",
        "praised",
        "others",
    ]


async def test_a_turn_right_after_a_correction_says_little_of_the_weights_and_is_left_out(store: Store) -> None:
    for name, score in (("a", 1), ("b", -1), ("c", -1), ("d", 1), ("e", 1)):
        await store.add_turn(a_turn(name), chain=name)
        await store.pair(NextState(name, (message(Role.USER, "and?"),), NextStateSource.USER))
        await store.judge(Verdict(name, score, VerdictSource.VOTES))
    assert [outcome.turn for outcome in await store.effects.outcomes()] == ["a", "b", "e"]


async def test_what_went_on_from_an_ancestor_goes_on_from_weights_that_are_there_again(store: Store) -> None:
    for version, parent in ((ONE, BASE), (TWO, ONE), (THREE, TWO)):
        await made(store, version, parent)
    book, why = store.orders, "forgotten"
    await store.set_current(ONE, why="rolled back by hand")
    assert not await book.go_on_from(TWO, instead_of=why)  # by the owner's order
    assert await store.current(SHARED) == ONE
    await store.set_current(ONE, why=why)
    assert await book.go_on_from(TWO, instead_of=why)
    assert await store.current(SHARED) == TWO
    assert not await book.go_on_from(ONE, instead_of=why)  # it is no older one that is served
    await store.orders.pin(BASE, at_s=1.0)
    assert not await book.go_on_from(THREE, instead_of=why)
    assert (await store.current(SHARED), await book.head(SHARED)) == (BASE, THREE)
