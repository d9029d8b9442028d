"""The judge's daily calls are counted over restarts."""

from __future__ import annotations

import sqlite3
from contextlib import aclosing
from pathlib import Path

from older_stores import take_back

from openclaw_rl.store import connection
from openclaw_rl.store.db import Store


async def test_a_restart_does_not_give_the_day_another_budget(tmp_path: Path) -> None:
    for left in (2, 0):
        async with aclosing(await Store.open(tmp_path)) as store:
            got = [await store.spend_judge_call(20_000, 2) for _ in range(3)]
            assert got.count(True) == left
            assert await store.judge_calls(20_000) == 2


async def test_another_day_has_its_own_budget_and_old_days_are_forgotten(store: Store) -> None:
    assert await store.spend_judge_call(20_000, 1)
    assert await store.spend_judge_call(20_001, 1)
    assert not await store.spend_judge_call(20_001, 1)
    assert await store.judge_calls(20_000) == 1
    assert await store.spend_judge_call(20_100, 1)
    assert await store.judge_calls(20_000) == 0


def test_an_older_store_learns_to_count(tmp_path: Path) -> None:
    connection.open_writer(tmp_path / "store.db").close()
    older = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    take_back(older, 3)
    older.close()
    again = connection.open_writer(tmp_path / "store.db")
    assert again.execute("SELECT count(*) FROM judge_calls").fetchone() == (0,)
    again.close()
