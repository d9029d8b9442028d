"""However a folder is damaged: repairing ends clean, loses no sound version and no readable turn, removes nothing."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openclaw_rl.cli import app
from openclaw_rl.core.adapter import WEIGHTS
from openclaw_rl.core.ledger import State
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.doctor.check import CheckReport, check_home
from openclaw_rl.doctor.learning import Level
from openclaw_rl.doctor.report import examine
from openclaw_rl.errors import ConfigError, StoreError
from openclaw_rl.store.connection import MAKE_STORE, SCHEMA_VERSION
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import VersionRow, VersionStatus
from openclaw_rl.testing.folders import lived_in

ONE, TWO = PolicyVersion(SHARED, 1), PolicyVersion(SHARED, 2)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 280 turns and two versions, its store in one file."""
    import asyncio

    home = tmp_path_factory.mktemp("ground")
    asyncio.run(lived_in(home, sessions=40))
    with closing(sqlite3.connect(home / "store.db", isolation_level=None)) as sql:
        sql.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return home


@pytest.fixture
def home(ground: Path, tmp_path: Path) -> Path:
    return shutil.copytree(ground, tmp_path / "home", ignore=shutil.ignore_patterns("*-shm", "*-wal"))


def repaired(home: Path) -> CheckReport:
    """The report on what was mended; the second look must find nothing, and mend nothing."""
    report = check_home(home, repair=True)
    assert report.is_sound, report
    assert check_home(home, repair=True).findings == ()
    return report


async def rows(home: Path) -> dict[PolicyVersion, VersionRow]:
    store = await Store.open(home)
    found = {row.version: row for row in await store.versions()}
    await store.aclose()
    return found


def weights(home: Path) -> set[bytes]:
    """The weights that lie anywhere in the folder."""
    return {path.read_bytes() for path in home.rglob(WEIGHTS)}


@pytest.mark.parametrize("percent", range(0, 100, 7))
async def test_a_store_that_was_cut_keeps_every_version_and_the_turns_that_are_left(home: Path, percent: int) -> None:
    path, kept = home / "store.db", weights(home)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * percent // 100])
    report = repaired(home)
    assert weights(home) == kept
    found = await rows(home)
    assert found[ONE].status is VersionStatus.LIVE
    assert found[TWO].status in (VersionStatus.LIVE, VersionStatus.CANDIDATE)
    # Pages are written in the order of what is said, after those at which tables and indexes begin.
    assert report.turns >= 280 * (percent - 45) / 100
    assert [item.name for item in (home / "aside").glob("store.db.*")] or percent == 0


@pytest.mark.parametrize("seed", range(30))
async def test_turned_bytes_cost_no_version_and_few_turns(home: Path, seed: int) -> None:
    path, chance, kept = home / "store.db", random.Random(seed), weights(home)
    data = bytearray(path.read_bytes())
    for _ in range(3):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    report = repaired(home)
    assert weights(home) == kept
    found = await rows(home)
    assert {ONE, TWO} <= found.keys() and all(found[item].status is not VersionStatus.REFUSED for item in (ONE, TWO))
    assert report.turns >= 280 - 3 * 40  # a page of the smallest rows holds fewer than 40


def lose_everything(home: Path) -> None:
    (home / "store.db").unlink()


def lose_the_version_rows(home: Path) -> None:
    with closing(sqlite3.connect(home / "store.db", isolation_level=None)) as sql:
        sql.execute("DELETE FROM versions WHERE number > 0")
        sql.execute("DELETE FROM steps")


def damage_a_version_row(home: Path) -> None:
    with closing(sqlite3.connect(home / "store.db", isolation_level=None)) as sql:
        sql.execute("UPDATE versions SET turns = x'00' WHERE number = 1")


def change_the_digest_in_the_row(home: Path) -> None:
    with closing(sqlite3.connect(home / "store.db", isolation_level=None)) as sql:
        sql.execute("UPDATE versions SET digest = 'x' || substr(digest, 2) WHERE number = 2")


def lose_a_manifest(home: Path) -> None:
    (home / "versions" / "shared.2" / "manifest.json").unlink()


def cut_a_manifest(home: Path) -> None:
    (home / "versions" / "shared.1" / "manifest.json").write_text("{")


@pytest.mark.parametrize(
    "harm",
    [
        lose_everything,
        lose_the_version_rows,
        damage_a_version_row,
        change_the_digest_in_the_row,
        lose_a_manifest,
        cut_a_manifest,
    ],
)
async def test_a_version_whose_folder_or_row_is_whole_is_taken_in_again(
    home: Path, harm: Callable[[Path], None]
) -> None:
    kept = weights(home)
    harm(home)
    repaired(home)
    assert weights(home) == kept
    found = await rows(home)
    assert found[ONE].status is VersionStatus.LIVE
    assert found[TWO].status in (VersionStatus.LIVE, VersionStatus.CANDIDATE)


async def test_what_a_version_taken_in_again_had_learned_is_not_learned_twice(home: Path, tmp_path: Path) -> None:
    older = tmp_path / "older"
    await lived_in(older, sessions=40)
    with closing(sqlite3.connect(older / "store.db", isolation_level=None)) as sql:  # a backup from before version 2
        sql.execute("DELETE FROM versions WHERE number = 2")
        sql.execute("DELETE FROM steps WHERE number = 2")
        sql.execute("UPDATE current SET number = 1")
        sql.execute("UPDATE lessons SET step = NULL WHERE step = 'step2'")
        sql.execute("UPDATE turns SET state = 'ready', step = NULL WHERE step = 'step2'")
        sql.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(older / "store.db", home / "store.db")
    repaired(home)
    store = await Store.open(home)
    ready = {sample.turn for sample in await store.ready(limit=1000)}
    row = await store.row("two0")
    assert row is not None and row.state is State.TRAINED and row.trained_version == TWO
    assert ready == {f"ready{session}" for session in range(40)}
    await store.aclose()


async def test_a_version_that_was_only_away_is_served_again_when_it_is_back(home: Path, tmp_path: Path) -> None:
    folder = home / "versions" / "shared.2"
    folder.rename(tmp_path / "away")
    check_home(home, repair=True)
    assert (await rows(home))[TWO].status is VersionStatus.REFUSED
    (tmp_path / "away").rename(folder)
    report = repaired(home)
    assert "`openclaw-rl rollback shared.2`" in report.findings[0].mend
    assert (await rows(home))[TWO].status is VersionStatus.LIVE


async def test_a_folder_that_is_not_whole_is_put_aside_not_removed(home: Path) -> None:
    lose_the_version_rows(home)
    path = home / "versions" / "shared.2" / WEIGHTS
    path.write_bytes(path.read_bytes()[:-3])
    repaired(home)
    assert [item.name.rpartition(".")[0] for item in (home / "aside").glob("shared.*")] == ["shared.2"]
    assert (await rows(home)).keys() == {PolicyVersion(SHARED, 0), ONE}


async def test_links_out_of_the_folder_are_not_followed(home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (home / "versions").rename(elsewhere)
    (home / "versions").symlink_to(elsewhere)
    lose_the_version_rows(home)
    (elsewhere / "shared.2" / WEIGHTS).write_bytes(b"")
    with pytest.raises(Exception, match="is a link to"):
        check_home(home, repair=True)
    assert sorted(path.name for path in elsewhere.iterdir()) == ["shared.1", "shared.2"]


def names(home: Path) -> list[Path]:
    """All that lies in the folder, but for the lock."""
    return sorted(path for path in home.rglob("*") if path.name != "lock")


@pytest.mark.parametrize("harm", ["missing", "a folder", "empty"])
async def test_where_there_is_no_store_looking_makes_none_and_repairing_takes_the_versions_in(
    home: Path, harm: str
) -> None:
    kept, store = weights(home), home / "store.db"
    store.unlink()
    if harm == "a folder":
        store.mkdir()
        (store / "notes").write_text("kept", "utf-8")
    elif harm == "empty":
        store.touch()
    before = names(home)
    (found,) = check_home(home).findings
    assert found.what.startswith(f"{store} is {harm}")
    doctored = await examine(home)
    (said,) = [item for item in doctored.findings if item.stage == "store"]
    assert (said.level, said.said, said.fix) == (Level.MEND, found.what, MAKE_STORE)
    assert doctored.story == "the store cannot be read"
    assert names(home) == before
    done = CliRunner().invoke(app, ["check", "--repair", "--home", str(home)])
    assert done.exit_code == 0, done.output
    assert weights(home) == kept and (await rows(home)).keys() == {PolicyVersion(SHARED, 0), ONE, TWO}
    if harm == "a folder":
        assert [path.read_text("utf-8") for path in (home / "aside").glob("store.db.*/notes")] == ["kept"]


async def test_looking_brings_no_older_store_up_to_date(home: Path) -> None:
    with closing(sqlite3.connect(home / "store.db", isolation_level=None)) as sql:
        sql.execute(f"PRAGMA user_version={SCHEMA_VERSION - 1}")
    with pytest.raises(StoreError, match=r"older version of openclaw-rl.*Start the server once"):
        check_home(home)


def test_a_folder_in_place_of_the_store_is_named_by_every_command(tmp_path: Path) -> None:
    (tmp_path / "store.db").mkdir()
    with pytest.raises(ConfigError, match=r"store.db is a folder, not a store.*check --repair"):
        CliRunner().invoke(app, ["inspect", "--home", str(tmp_path)], catch_exceptions=False)
    assert CliRunner().invoke(app, ["check", "--repair", "--home", str(tmp_path)]).exit_code == 0
    assert (tmp_path / "store.db").is_file()
