"""What was acknowledged outlives the process; what could not be written leaves no trace."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from store_doubles import paired_and_judged

from openclaw_rl.core.ledger import State
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.errors import StoreError
from openclaw_rl.store.connection import in_plain_words, open_writer
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import StepRecord, VersionRow, VersionStatus
from openclaw_rl.store.threads import Transaction, Writer
from openclaw_rl.testing.turns import a_sample, a_turn

WRITE = """
import asyncio, sys
from pathlib import Path
from openclaw_rl.store.db import Store
from openclaw_rl.testing.turns import a_turn

async def write(lane):
    for number in range(100_000):
        name = f"{lane}-{number}"
        await store.add_turn(a_turn(name, name + " why" * 500), chain=name)
        sys.stdout.write(name + "\\n")
        sys.stdout.flush()

async def main():
    global store
    store = await Store.open(Path(sys.argv[1]))
    await asyncio.gather(*(write(lane) for lane in range(4)))

asyncio.run(main())
"""

FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from openclaw_rl.errors import StoreError
from openclaw_rl.store.db import Store
from openclaw_rl.testing.turns import a_turn

async def main():
    store = await Store.open(Path(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
    number = 0
    try:
        while number < 10_000:
            await store.add_turn(a_turn(f"t{number}", "".join(chr(33 + (i * i * number) % 7000) for i in range(3000))),
                                 chain=str(number))
            number += 1
    except StoreError as problem:
        print(number, problem, flush=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await store.add_turn(a_turn("after"), chain="after")
    await store.aclose()

asyncio.run(main())
"""


def _acknowledged_before_the_kill(home: Path) -> list[str]:
    child = subprocess.Popen([sys.executable, "-c", WRITE, str(home)], stdout=subprocess.PIPE, text=True)
    with child:
        assert child.stdout is not None
        acknowledged = [child.stdout.readline().strip() for _ in range(300)]
        child.send_signal(signal.SIGKILL)
        acknowledged += [line.strip() for line in child.stdout if line.endswith("\n")]
        assert child.wait() == -signal.SIGKILL
    return acknowledged


async def test_a_killed_process_loses_no_turn_it_acknowledged(tmp_path: Path) -> None:
    acknowledged = _acknowledged_before_the_kill(tmp_path)
    assert len(set(acknowledged)) >= 300
    store = await Store.open(tmp_path)
    for name in acknowledged:
        turn = await store.turn(name)
        assert turn is not None
        assert turn == a_turn(name, name + " why" * 500)
    counts = await store.counts()
    # a commit that was on its way may be there too, one to a lane
    assert len(acknowledged) <= counts["served"] == counts["main"] <= len(acknowledged) + 4
    await store.aclose()


def _written_until_the_disk_was_full(home: Path) -> tuple[int, str]:
    ended = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(home)], capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    number, said = ended.stdout.split(" ", 1)
    return int(number), said


async def test_a_full_disk_is_said_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    number, said = _written_until_the_disk_was_full(tmp_path)
    assert "the store cannot be written" in said
    assert "Free space on the disk" in said
    store = await Store.open(tmp_path)
    assert (await store.counts())["main"] == number + 1  # all before it, and the one after space was freed
    assert await store.turn("after") == a_turn("after")
    await store.aclose()


def test_errors_of_the_file_system_are_said_in_plain_words(tmp_path: Path) -> None:
    sql = open_writer(tmp_path / "store.db")
    sql.execute("PRAGMA query_only=ON")
    with pytest.raises(sqlite3.OperationalError) as refused:
        sql.execute("DELETE FROM turns")
    sql.close()
    assert "Make the folder and store.db writable" in str(in_plain_words(refused.value))


async def test_a_step_is_on_the_disk_before_it_is_acknowledged(tmp_path: Path) -> None:
    levels: list[tuple[str, int]] = []

    def level(name: str) -> None:
        levels.append((name, int(sql.execute("PRAGMA synchronous").fetchone()[0])))

    sql = open_writer(tmp_path / "store.db")
    writer = Writer(sql, lambda moved: None)
    await writer.do(lambda tx: level("turn"))
    await writer.do(lambda tx: level("step"), is_synced=True)
    await writer.do(lambda tx: level("turn after"))
    await asyncio.to_thread(writer.close)
    assert levels == [("turn", 1), ("step", 2), ("turn after", 1)]  # 1 is NORMAL, 2 is FULL


async def test_what_is_asked_while_a_transaction_runs_is_committed_together(tmp_path: Path) -> None:
    sql = open_writer(tmp_path / "store.db")
    commits: list[str] = []
    sql.set_trace_callback(lambda said: commits.append(said) if said.startswith("COMMIT") else None)
    writer = Writer(sql, lambda moved: None)
    started, go_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def hold(tx: Transaction) -> None:
        loop.call_soon_threadsafe(started.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()

    def enter(name: str) -> Callable[[Transaction], int]:
        return lambda tx: tx.sql.execute("INSERT INTO current VALUES (?, 1, '')", (name,)).rowcount

    async with asyncio.TaskGroup() as group:
        group.create_task(writer.do(hold))
        await started.wait()
        rows = [group.create_task(writer.do(enter(str(number)))) for number in range(50)]
        await asyncio.sleep(0)
        go_on.set()
    await asyncio.to_thread(writer.close)
    assert [row.result() for row in rows] == [1] * 50
    assert len(commits) == 2


async def test_one_refused_request_does_not_take_its_neighbours_with_it(store: Store) -> None:
    results = await asyncio.gather(
        store.add_turn(a_turn("a"), chain="a"),
        store.add_turn(a_turn("a"), chain="again"),
        store.add_turn(a_turn("b"), chain="b"),
        store.admit(a_sample(a_turn("a"))),
        store.add_turn(a_turn("c"), chain="c"),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [bool, ValueError, bool, ValueError, bool]
    assert (await store.counts())["served"] == 3
    assert await store.ready(limit=9) == []


async def test_a_step_that_cannot_be_taken_whole_is_not_taken_at_all(store: Store) -> None:
    await paired_and_judged(store, "a", "b")
    await store.admit(a_sample(a_turn("a")))
    version = VersionRow(
        PolicyVersion("shared", 1), None, None, "d", VersionStatus.CANDIDATE, "", 1.0, turns=("a", "b")
    )
    with pytest.raises(ValueError, match="b does not wait to train"):
        await store.commit_step(StepRecord("s", 0.0, 1.0, ("a", "b"), (), {}, version))
    assert not await store.wait(State.TRAINED, timeout_s=0.0)
    assert [sample.turn for sample in await store.ready(limit=9)] == ["a"]
    assert len(await store.versions()) == 1
    await store.commit_step(StepRecord("s", 0.0, 1.0, ("a",), (), {"loss": 0.5}, version))
    for again in ("s", "s2"):  # trained twice neither under the same name nor under another
        with pytest.raises(ValueError, match=r"committed already|does not wait to train"):
            await store.commit_step(StepRecord(again, 0.0, 1.0, ("a",), (), {}, None))
    row = await store.row("a")
    assert row is not None
    assert (row.state, row.step, row.trained_version) == (State.TRAINED, "s", PolicyVersion("shared", 1))


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    await store.aclose()
    with pytest.raises(StoreError, match="closed"):
        await store.add_turn(a_turn("t"), chain="c")
    with pytest.raises(StoreError, match="closed"):
        await store.turn("t")


async def test_what_is_queued_at_closing_is_still_written(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    async with asyncio.TaskGroup() as group:
        for number in range(100):
            group.create_task(store.add_turn(a_turn(f"t{number}"), chain=str(number)))
        await asyncio.sleep(0)
        await store.aclose()
    store = await Store.open(tmp_path)
    assert (await store.counts())["served"] == 100
    await store.aclose()
