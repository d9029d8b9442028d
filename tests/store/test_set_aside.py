"""What was set aside may wait for a step again; what was dropped for other reasons may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.store.connection import NAME, open_writer
from openclaw_rl.store.db import Store
from openclaw_rl.store.mend.check import check_rows
from openclaw_rl.store.rows import StepRecord
from openclaw_rl.testing.turns import a_sample, a_turn

OWN = "user:ann"


async def ready(store: Store, name: str, *scopes: str) -> None:
    await store.add_turn(a_turn(name), chain=name)
    await store.pair(NextState(name, (message(Role.USER, "no"),), NextStateSource.USER))
    await store.judge(Verdict(name, -1, VerdictSource.VOTES))
    await store.admit(a_sample(a_turn(name)), scopes=scopes or ("shared",))


async def test_only_what_was_too_dear_and_taught_nobody_is_taken_back(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    for name in ("dear", "stale", "waits"):
        await ready(store, name)
    await ready(store, "both", "shared", OWN)
    await ready(store, "half", "shared", OWN)
    await store.drop("dear", DropReason.TOO_DEAR)
    await store.drop("stale", DropReason.STALE)
    await store.drop("both", DropReason.TOO_DEAR)
    await store.drop("half", DropReason.TOO_DEAR, scope="shared")
    await store.commit_step(StepRecord("s1", 0.0, 1.0, ("half",), (), {"loss": 1.0}, None, OWN))
    assert sorted(await store.steps.take_back(DropReason.TOO_DEAR)) == ["both", "dear"]
    states = {name: (await store.row(name)) for name in ("dear", "stale", "waits", "both", "half")}
    assert {name: row.state for name, row in states.items() if row is not None} == {
        "dear": State.READY,
        "stale": State.DROPPED,
        "waits": State.READY,
        "both": State.READY,
        "half": State.TRAINED,
    }
    assert [one.turn for one in await store.ready(limit=9)] == ["dear", "waits", "both"]
    assert [one.turn for one in await store.ready(limit=9, scope=OWN)] == ["both"]
    assert await store.steps.take_back(DropReason.TOO_DEAR) == []
    with pytest.raises(ValueError, match="stale"):
        await store.steps.take_back(DropReason.STALE)
    await store.aclose()
    sql = open_writer(tmp_path / NAME)
    assert check_rows(sql, repair=False) == []
    sql.close()


async def test_what_steps_told_is_read_back_oldest_first(store: Store) -> None:
    for number in range(3):
        await store.commit_step(StepRecord(f"s{number}", 0.0, float(number), (), (), {"loss": float(number)}, None))
    assert await store.steps.newest(2) == [{"loss": 1.0}, {"loss": 2.0}]
