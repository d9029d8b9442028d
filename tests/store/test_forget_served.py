"""Forgetting in a store that is being written to: what is under way is not stored, and no byte stays."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from dataclasses import replace
from pathlib import Path

import pytest
from forget_doubles import holds, taught

from openclaw_rl.core.hint import PlacedHint
from openclaw_rl.core.turn import TurnKind
from openclaw_rl.errors import StoreError
from openclaw_rl.store.connection import open_writer
from openclaw_rl.store.db import Store
from openclaw_rl.store.forget.selection import ForgetSelection, ForgetTarget
from openclaw_rl.store.threads import Writer
from openclaw_rl.testing.turns import a_turn

CANARY = "plum-violin-harbour-ninety"


def no_plan(sql: sqlite3.Connection, what: ForgetSelection) -> str:
    return "{}"


async def talked(folder: Path) -> Store:
    store = await Store.open(folder)
    await taught(store, "a1", ("first",), session="k:ann", then=f"no, say {CANARY}", hint=f"Say {CANARY}.")
    await taught(store, "a2", ("first", f"no, say {CANARY}"), session="k:ann", parent="a1")
    await taught(store, "b1", ("hello",), session="k:bob", user="bob", hint="Be brief.")
    return store


async def test_what_was_being_answered_is_not_stored(tmp_path: Path) -> None:
    store = await talked(tmp_path)
    (hint,) = await store.hints.of_user("ann")
    asked_s = time.time()
    await store.forgettings.begin(ForgetTarget(session="ann"), name="f", at_s=1.0, planned=no_plan)
    carried = (PlacedHint(0, hint.id, hint.text),)
    theirs = {
        "same session": a_turn("t1", session="k:ann", user="ann", at_s=asked_s),
        "a side request of it": a_turn("t2", session="k:ann", user="ann", at_s=asked_s, kind=TurnKind.SIDE),
        "goes on from it elsewhere": a_turn("t3", session="k:other", user="bob", parent="a2", at_s=asked_s + 9),
        "behind a hint drawn from it": replace(a_turn("t4", session="k:third", at_s=asked_s + 9), carried=carried),
    }
    for why, turn in theirs.items():
        assert not await store.add_turn(turn, chain=turn.id), why
        assert await store.turn(turn.id) is None
    others = a_turn("t5", session="k:bob", user="bob", at_s=asked_s)
    later = a_turn("t6", session="k:ann", user="ann", at_s=asked_s + 60)  # said again, since
    assert await store.add_turn(others, chain="t5")
    assert await store.add_turn(later, chain="t6")
    store.forgettings.answered("f")
    assert await store.add_turn(theirs["same session"], chain="t1")
    await store.aclose()


async def test_a_turn_stored_while_it_was_looked_for_goes_too(tmp_path: Path) -> None:
    store = await talked(tmp_path)
    begun = asyncio.ensure_future(
        store.forgettings.begin(ForgetTarget(session="ann"), name="f", at_s=1.0, planned=no_plan)
    )
    more = [
        store.add_turn(a_turn(f"a{number}", session="k:ann", user="ann", at_s=2.0), chain=f"a{number}")
        for number in range(3, 30)
    ]
    await asyncio.gather(begun, *more)
    left = [row.turn.id for row in await store.history(limit=100)]
    assert left == ["b1"]
    await store.aclose()


async def test_no_byte_stays_in_a_store_that_is_open_and_others_go_on_writing(tmp_path: Path) -> None:
    store = await talked(tmp_path)
    assert holds(tmp_path, CANARY)
    await store.forgettings.begin(ForgetTarget(user="ann"), name="f", at_s=1.0, planned=no_plan)
    assert holds(tmp_path, CANARY)  # in free pages and in the log
    async with store.exports.snapshot() as snapshot:
        emptied = asyncio.ensure_future(store.forgettings.compact())
        for number in range(20):
            await store.add_turn(a_turn(f"later{number}", session="k:bob", user="bob"), chain=f"later{number}")
        assert not emptied.done()  # the log is as long as the oldest state that is read
        assert await snapshot.do(lambda sql: sql.execute("SELECT count(*) FROM turns").fetchone()[0]) < 21
    await emptied
    assert holds(tmp_path, CANARY) == []
    assert len(await store.history(limit=100)) == 21
    await store.aclose()


async def test_the_thread_that_writes_outlives_what_goes_wrong_outside_of_transactions(tmp_path: Path) -> None:
    writer = Writer(open_writer(tmp_path / "store.db"), lambda moved: None)
    with pytest.raises(StoreError, match="nowhere"):
        await writer.alone(lambda sql: sql.execute("VACUUM nowhere"))
    assert await writer.do(lambda tx: tx.sql.execute("SELECT 1").fetchone()) == (1,)
    await asyncio.to_thread(writer.close)
