"""Who may open a store, and what is said to those who may not."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from openclaw_rl.core.message import Role, message
from openclaw_rl.core.version import BASE
from openclaw_rl.errors import StoreError
from openclaw_rl.store import connection
from openclaw_rl.store.db import Store
from openclaw_rl.testing.turns import a_turn

HOLD = """
import asyncio, sys
from pathlib import Path
from openclaw_rl.store.db import Store

async def hold():
    await Store.open(Path(sys.argv[1]))
    print("held", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    import os
    os._exit(0)

asyncio.run(hold())
"""


def _holding(home: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


async def filled(home: Path, turns: int = 40) -> None:
    store = await Store.open(home)
    for number in range(turns):
        await store.add_turn(a_turn(f"t{number}", f"{number} " + "why " * 400), chain=str(number))
    await store.aclose()


async def test_a_second_process_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    with _holding(tmp_path) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == "held\n"
        with pytest.raises(StoreError, match=rf"is in use by process {child.pid}. Stop that server first"):
            await Store.open(tmp_path)
        child.stdin.close()
        child.wait()
    store = await Store.open(tmp_path)  # the lock ended with its holder, though nobody freed it
    await store.aclose()


async def test_the_same_process_cannot_open_it_twice_but_can_open_it_again(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    with pytest.raises(StoreError, match=f"process {os.getpid()}"):
        await Store.open(tmp_path)
    await store.aclose()
    await store.aclose()
    await (await Store.open(tmp_path)).aclose()


async def test_nobody_else_can_read_what_was_said(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        store = await Store.open(tmp_path / "a" / "home")
        await store.add_turn(a_turn("t"), chain="c")
    finally:
        os.umask(old)
    names = {path.name for path in (tmp_path / "a" / "home").iterdir()}
    assert {"store.db", "store.db-wal", "lock"} <= names
    for path in (tmp_path / "a" / "home").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE((tmp_path / "a" / "home").stat().st_mode) == 0o700
    await store.aclose()


async def test_a_store_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    await filled(tmp_path, 1)
    (tmp_path / "store.db").chmod(0o644)
    await (await Store.open(tmp_path)).aclose()
    assert stat.S_IMODE((tmp_path / "store.db").stat().st_mode) == 0o600


async def test_an_older_program_refuses_a_newer_store(tmp_path: Path) -> None:
    await filled(tmp_path, 1)
    with sqlite3.connect(tmp_path / "store.db") as sql:
        sql.execute(f"PRAGMA user_version={connection.SCHEMA_VERSION + 1}")
    sql.close()
    before = (tmp_path / "store.db").read_bytes()
    with pytest.raises(StoreError, match=r"written by a newer version of openclaw-rl.*Upgrade openclaw-rl"):
        await Store.open(tmp_path)
    assert (tmp_path / "store.db").read_bytes() == before


async def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "store.db") as sql:
        sql.execute("CREATE TABLE theirs (a)")
    sql.close()
    with pytest.raises(StoreError, match="another program"):
        await Store.open(tmp_path)


@pytest.mark.parametrize("harm", ["no database", "torn pages", "cut short"])
async def test_a_damaged_file_is_refused_with_what_to_do(tmp_path: Path, harm: str) -> None:
    await filled(tmp_path)
    path = tmp_path / "store.db"
    data = bytearray(path.read_bytes())
    if harm == "no database":
        data[:] = b"this is no database" * 1000
    elif harm == "torn pages":
        for at in range(4096, len(data), 4096):
            data[at : at + 64] = b"\xff" * 64
    else:
        del data[len(data) // 2 :]
    path.write_bytes(data)
    with pytest.raises(StoreError, match=r"damaged.*move store.db and store.db-wal away"):
        await Store.open(tmp_path)
    path.unlink()
    await (await Store.open(tmp_path)).aclose()  # and the folder was not left locked


async def test_a_flipped_bit_in_what_was_said_is_noticed_when_it_is_read(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    await store.add_turn(a_turn("t", (message(Role.USER, "the needle"),)), chain="c")
    await store.aclose()
    path = tmp_path / "store.db"
    data = path.read_bytes()
    assert data.count(b"the needle") == 1
    path.write_bytes(data.replace(b"the needle", b"the noodle"))
    store = await Store.open(tmp_path)
    with pytest.raises(StoreError, match="fails its checksum"):
        await store.turn("t")
    await store.aclose()


async def test_a_folder_that_cannot_be_made_is_said_in_plain_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot be written.*Give --home a folder of your own"):
        await Store.open(tmp_path / "file" / "home")
    (tmp_path / "home" / "store.db").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"store.db cannot be written: it is a folder.*check --repair"):
        await Store.open(tmp_path / "home")
    (tmp_path / "other" / "lock").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"lock cannot be written: it is a folder. Remove or rename .*other/lock"):
        await Store.open(tmp_path / "other")


async def test_a_new_store_knows_the_base_model_and_serves_it(store: Store) -> None:
    (row,) = await store.versions()
    assert (row.version, row.parent, row.folder, row.status.value) == (BASE, None, None, "live")
    assert await store.current("shared") == BASE
