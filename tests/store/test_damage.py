"""Turns whose bytes changed on the disk: dropped with their reason, and no other waits behind them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from store_doubles import paired_and_judged, ready, said

from openclaw_rl.core.ledger import State
from openclaw_rl.errors import DamageError
from openclaw_rl.store.db import Store
from openclaw_rl.testing.turns import a_turn


async def lived_in(home: Path) -> None:
    store = await Store.open(home)
    await ready(store, "ready0", "ready1")
    await paired_and_judged(store, "judged0", "judged1")
    for name in ("paired0", "paired1"):
        await store.add_turn(a_turn(name), chain=name)
        await store.pair(said(name))
    await store.aclose()


def spoil(home: Path, statement: str) -> None:
    with closing(sqlite3.connect(home / "store.db", isolation_level=None)) as sql:
        sql.execute(statement)


OF = "WHERE seq = (SELECT seq FROM turns WHERE id = 'NAME')"


@pytest.mark.parametrize(
    ("turn", "harm"),
    [
        ("paired0", f"UPDATE bodies SET body = zeroblob(50) {OF}"),
        ("paired0", "DELETE FROM next_states WHERE turn = 'NAME'"),
        ("paired0", f"UPDATE turns SET at_s = 'noon' {OF}"),
        ("judged0", f"UPDATE bodies SET response = substr(response, 1, 9) {OF}"),
        ("judged0", "UPDATE verdicts SET votes = 7 WHERE turn = 'NAME'"),
        ("ready0", "UPDATE samples SET ids = zeroblob(30) WHERE turn = 'NAME'"),
    ],
)
async def test_a_turn_that_cannot_be_read_is_dropped_and_the_next_one_is_given(
    tmp_path: Path, turn: str, harm: str
) -> None:
    await lived_in(tmp_path)
    spoil(tmp_path, harm.replace("NAME", turn))
    store = await Store.open(tmp_path)
    paired = [row[0].id for row in await store.paired(limit=9)]
    judged = [row.turn.id for row in await store.judged(limit=9)]
    samples = [sample.turn for sample in await store.ready(limit=9)]
    all_waiting = {"paired0", "paired1", "judged0", "judged1", "ready0", "ready1"}
    assert {*paired, *judged, *samples} == all_waiting - {turn}
    counts = await store.counts()
    assert (counts["dropped.damaged"], counts["main"]) == (1, 6)
    await store.aclose()


async def test_a_damaged_turn_asked_for_by_name_is_an_error_of_its_own_kind(tmp_path: Path) -> None:
    await lived_in(tmp_path)
    spoil(tmp_path, "UPDATE bodies SET prompt = zeroblob(9)")
    store = await Store.open(tmp_path)
    with pytest.raises(DamageError, match="check --repair"):
        await store.turn("paired0")
    assert (await store.counts())[State.PAIRED] == 2  # looking changes nothing
    await store.aclose()
