"""Hints that were not meant outlive the program, grow together, and go with the turns that they came from."""

from __future__ import annotations

from pathlib import Path

import pytest
from older_stores import take_back

from openclaw_rl.store.connection import open_writer
from openclaw_rl.store.db import Store
from openclaw_rl.store.forget.erase import erase
from openclaw_rl.store.forget.selection import ForgetSelection
from openclaw_rl.store.mend.check import check_rows
from openclaw_rl.store.tables.unmeant import Undoing, Unmeant
from openclaw_rl.testing.turns import a_turn

LONG, SHORT = "Explain every step.", "Keep it short."
AGAINST = Undoing("asked for something else", (SHORT,))


@pytest.fixture
async def home(tmp_path: Path) -> Path:
    store = await Store.open(tmp_path)
    for name in ("first", "second"):
        await store.add_turn(a_turn(name), chain=name)
    assert await store.unmeant.add(Unmeant("first", frozenset({LONG}), "second", AGAINST))
    await store.aclose()
    return tmp_path


async def test_it_is_known_after_a_restart_until_it_is_undone(home: Path) -> None:
    store = await Store.open(home)
    found = Unmeant("first", frozenset({LONG}), "second", AGAINST)
    assert await store.unmeant.to_undo() == [found]
    await store.unmeant.undone("first")
    assert await store.unmeant.to_undo() == []
    assert await store.unmeant.of_turn("first") == Unmeant("first", frozenset({LONG}), "second")
    await store.aclose()


async def test_what_is_found_later_is_added(home: Path) -> None:
    store = await Store.open(home)
    assert await store.unmeant.add(Unmeant("first", frozenset({SHORT})))
    assert await store.unmeant.of_turn("first") == Unmeant("first", frozenset({LONG, SHORT}), "second", AGAINST)
    assert not await store.unmeant.add(Unmeant("unknown", frozenset({SHORT})))
    await store.aclose()


async def test_only_those_that_a_user_replaced_are_their_replaced_ones(home: Path) -> None:
    store = await Store.open(home)
    await store.unmeant.add(Unmeant("second", frozenset({SHORT})))
    user = a_turn("first").user
    assert [found.turn for found in await store.unmeant.replaced(user, limit=5)] == ["first"]
    assert await store.unmeant.replaced("somebody else", limit=5) == []
    await store.aclose()


@pytest.mark.parametrize("gone", ["first", "second"])
@pytest.mark.parametrize("is_whole", [True, False])
async def test_nothing_is_left_of_a_turn_that_is_forgotten(home: Path, gone: str, is_whole: bool) -> None:
    """Also of the words against a hint, which a newer correction said; whether the turn goes or what followed it."""
    sql = open_writer(home / "store.db")
    turns, unsaid = ((gone,), ()) if is_whole else ((), (gone,))
    erase(sql, ForgetSelection(turns, unsaid, unread=(), hints=(), sessions=(), versions=()))
    sql.commit()
    assert sql.execute("SELECT count(*) FROM unmeant").fetchone() == (0,)
    sql.close()


async def test_a_damaged_row_is_left_out_and_a_repair_forgets_it(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = await Store.open(home)
    await store.unmeant.add(Unmeant("second", frozenset({SHORT}), undoing=AGAINST))
    await store.aclose()
    sql = open_writer(home / "store.db")
    sql.execute("UPDATE unmeant SET hints = x'00ff' WHERE turn = 'first'")
    sql.commit()
    sql.close()
    store = await Store.open(home)
    assert [found.turn for found in await store.unmeant.to_undo()] == ["second"]
    assert await store.unmeant.of_turn("first") is None
    assert "left out what was not meant of turn=first" in caplog.text
    await store.aclose()
    sql = open_writer(home / "store.db")
    (found,) = [one for one in check_rows(sql, repair=True) if "not meant of turn first" in one.what]
    assert found.is_mended and sql.execute("SELECT turn FROM unmeant").fetchall() == [("second",)]
    sql.close()


async def test_a_store_from_before_knows_of_none(home: Path) -> None:
    sql = open_writer(home / "store.db")
    take_back(sql, 13)
    sql.close()
    store = await Store.open(home)
    assert await store.unmeant.to_undo() == []
    assert await store.unmeant.add(Unmeant("first", frozenset({LONG})))
    await store.aclose()
