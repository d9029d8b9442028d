"""What a refused version learned from waits again, so many times; then it was given up by name."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from store_doubles import paired_and_judged

from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.store import connection
from openclaw_rl.store.db import Store
from openclaw_rl.store.mend.check import check_rows
from openclaw_rl.store.rows import GIVEN_BACK, StepRecord, VersionRow, VersionStatus
from openclaw_rl.store.tables.lessons import Refusal, ReturnedSamples
from openclaw_rl.testing.turns import a_sample, a_turn

ANN = "user-ann"
ONCE = Refusal("it forgot how to add", {"gate_stray": 0.5}, most=1)


async def admit(store: Store, name: str, *scopes: str, is_rehearsal: bool = False) -> None:
    await paired_and_judged(store, name)
    sample = a_sample(a_turn(name))
    sample = replace(sample, score=None, hints=(), is_promoted=True) if is_rehearsal else sample
    await store.admit(sample, scopes=scopes or (SHARED,))


async def made(store: Store, number: int, *turns: str, scope: str = SHARED) -> PolicyVersion:
    version = PolicyVersion(scope, number)
    row = VersionRow(version, PolicyVersion(scope, 0), None, "", VersionStatus.CANDIDATE, "", 1.0, turns)
    await store.commit_step(StepRecord(f"step {version}", 0.0, 1.0, turns, (), {}, row, scope))
    return version


async def stands(store: Store, name: str) -> tuple[State | None, DropReason | None, str | None]:
    row = await store.row(name)
    assert row is not None
    return row.state, row.reason, row.step


async def waiting(store: Store, scope: str = SHARED) -> list[str]:
    return [sample.turn for sample in await store.ready(limit=9, scope=scope)]


async def test_what_a_refused_version_learned_from_waits_once_more_and_is_then_not_learnable(store: Store) -> None:
    await admit(store, "a")
    await admit(store, "old", is_rehearsal=True)
    first = await made(store, 1, "a", "old")
    assert (await stands(store, "a"))[0] is State.TRAINED
    assert await store.refusals.refuse(first, ONCE) == ReturnedSamples(("a", "old"), ())
    assert await stands(store, "a") == (State.READY, None, None)
    assert (await waiting(store), await store.refusals.returned(SHARED)) == (
        ["a", "old"],
        {"a": 1, "old": 1},
    )
    row = await store.version(first)
    assert row is not None and (row.status, row.why) == (VersionStatus.REFUSED, "it forgot how to add")
    assert (row.turns, row.metrics) == (("a", "old"), {"gate_stray": 0.5, GIVEN_BACK: 2.0})

    second = await made(store, 2, "a", "old")
    assert await store.refusals.refuse(second, ONCE) == ReturnedSamples((), ("a", "old"))
    assert await stands(store, "a") == (State.DROPPED, DropReason.NOT_LEARNABLE, None)
    assert await stands(store, "old") == (State.DROPPED, DropReason.NO_SIGNAL, None)
    assert (await waiting(store), await store.refusals.returned(SHARED)) == ([], {})
    assert (await store.counts())["dropped.not_learnable"] == 1


async def test_a_refusal_that_was_no_fault_of_the_version_does_not_count(store: Store) -> None:
    await admit(store, "a")
    for number in (1, 2, 3):
        refusal = replace(ONCE, is_counted=False)
        assert (await store.refusals.refuse(await made(store, number, "a"), refusal)).waiting == ("a",)
    assert await store.refusals.returned(SHARED) == {}


async def test_another_scope_keeps_what_it_learned(store: Store) -> None:
    await admit(store, "a", SHARED, ANN)
    await made(store, 1, "a")
    own = await made(store, 1, "a", scope=ANN)
    assert (await stands(store, "a"))[0] is State.TRAINED
    assert (await store.refusals.refuse(own, ONCE)).waiting == ("a",)
    assert await stands(store, "a") == (State.READY, None, "step shared.1")
    assert (await waiting(store), await waiting(store, ANN)) == ([], ["a"])
    again = await made(store, 2, "a", scope=ANN)
    assert (await store.refusals.refuse(again, ONCE)).given_up == ("a",)
    assert await stands(store, "a") == (State.TRAINED, None, "step shared.1")  # the shared version has learned from it
    assert await store.refusals.refuse(PolicyVersion(SHARED, 1), ONCE) == ReturnedSamples(("a",), ())


async def test_what_was_forgotten_meanwhile_is_left_out(store: Store, tmp_path: Path) -> None:
    for name in ("a", "gone"):
        await admit(store, name)
    version = await made(store, 1, "a", "gone")
    other = sqlite3.connect(tmp_path / connection.NAME)
    other.execute("PRAGMA foreign_keys=ON")
    other.execute("DELETE FROM turns WHERE id = 'gone'")
    other.commit()
    other.close()
    assert await store.refusals.refuse(version, ONCE) == ReturnedSamples(("a",), ())


async def test_a_turn_that_was_given_back_and_learned_again_was_not_trained_twice(store: Store, tmp_path: Path) -> None:
    await admit(store, "a")
    await store.refusals.refuse(await made(store, 1, "a"), ONCE)
    await made(store, 2, "a")
    await store.aclose()
    sql = connection.open_writer(tmp_path / connection.NAME)
    assert not [one.what for one in check_rows(sql, repair=False) if "trained twice" in one.what]
    sql.execute("UPDATE versions SET metrics = '{}' WHERE number = 1")
    assert [one.what for one in check_rows(sql, repair=False) if "trained twice" in one.what]
    sql.close()


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.store.tables import lessons
from openclaw_rl.store.db import Store
from openclaw_rl.store.tables.lessons import Refusal

async def main():
    store = await Store.open(Path(sys.argv[1]))
    connection = store._writer._connection
    seen = []
    def at(statement):
        if statement.startswith(sys.argv[2]):
            seen.append(statement)
            if len(seen) == int(sys.argv[3]):
                os.kill(os.getpid(), signal.SIGKILL)
    connection.set_trace_callback(at)
    await store.refusals.refuse(PolicyVersion("shared", 1), Refusal("no", {}, most=1))
    print("acknowledged", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("statement", "time", "is_refused"),
    [
        ("UPDATE lessons", 1, False),
        ("UPDATE lessons", 2, False),
        ("UPDATE versions", 1, False),
        ("COMMIT", 1, False),
        ("never", 1, True),
    ],
)
async def test_a_kill_leaves_all_of_a_refusal_or_nothing(
    tmp_path: Path, statement: str, time: int, is_refused: bool
) -> None:
    store = await Store.open(tmp_path)
    for name in ("a", "b"):
        await admit(store, name)
    version = await made(store, 1, "a", "b")
    await store.aclose()
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, str(tmp_path), statement, str(time), stdout=asyncio.subprocess.PIPE
    )
    said, _ = await child.communicate()
    assert (child.returncode, said) == (-signal.SIGKILL, b"acknowledged\n" if is_refused else b"")
    again = await Store.open(tmp_path)
    row = await again.version(version)
    assert row is not None
    assert row.status is (VersionStatus.REFUSED if is_refused else VersionStatus.CANDIDATE)
    assert await waiting(again) == (["a", "b"] if is_refused else [])
    if not is_refused:  # the gate tries it again, and then it is
        assert (await again.refusals.refuse(version, ONCE)).waiting == ("a", "b")
    await again.aclose()
