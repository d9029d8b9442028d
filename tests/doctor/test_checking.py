"""What `openclaw-rl check` finds in a folder, and what it mends."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import aclosing, closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openclaw_rl.cli import app
from openclaw_rl.core.adapter import TRAINER_FACTS, TRAINER_STATE
from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.doctor.check import check_beside, check_home
from openclaw_rl.errors import StoreError
from openclaw_rl.home.folder import kept_key
from openclaw_rl.home.keys import kept_keys
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import TurnRow, VersionStatus
from openclaw_rl.testing.folders import lived_in, with_state

BODY = "UPDATE bodies SET body = substr(body, 1, 40) WHERE seq = (SELECT seq FROM turns WHERE id = ?)"


def spoil(home: Path, statement: str, *values: str) -> None:
    """Changes rows behind the program's back."""
    with closing(sqlite3.connect(home / "store.db", isolation_level=None)) as sql:
        sql.execute("PRAGMA foreign_keys=OFF")
        sql.execute(statement, values)


async def row_of(home: Path, turn: str) -> TurnRow:
    async with aclosing(await Store.open(home)) as store:
        row = await store.row(turn)
        assert row is not None
        return row


def put_aside(home: Path) -> list[Path]:
    """The damaged stores that lie beside the new one."""
    return list(home.glob("aside/store.db.*"))


def names_aside(home: Path, start: str) -> list[str]:
    """What repairing put aside whose names start like this."""
    return [path.name for path in home.glob(f"aside/{start}*")]


def mended(home: Path) -> list[str]:
    """What was found; all of it must be mended, and nothing found any more."""
    found = check_home(home)
    assert not found.is_sound
    report = check_home(home, repair=True)
    assert report.is_sound, report
    assert check_home(home).findings == ()
    lines = [f"{item.what} | {item.mend}" for item in report.findings if "about to be mended" not in item.what]
    assert len(lines) == len(found.findings)
    return lines


async def test_a_sound_folder_has_no_findings_and_is_left_as_it_was(tmp_path: Path) -> None:
    await lived_in(tmp_path)
    report = check_home(tmp_path)
    assert (report.findings, report.turns, report.versions) == ((), 14, 3)
    before = (tmp_path / "store.db").read_bytes()
    assert check_home(tmp_path, repair=True).is_sound
    assert (tmp_path / "store.db").read_bytes() == before


@pytest.mark.parametrize(
    ("turn", "table", "state"),
    [
        ("paired0", "next_states", State.SERVED),
        ("judged0", "verdicts", State.PAIRED),
        ("judged0", "next_states", State.SERVED),
        ("ready0", "samples", State.JUDGED),
        ("ready0", "lessons", State.JUDGED),
    ],
)
async def test_a_turn_that_lost_what_its_state_needs_is_queued_again(
    tmp_path: Path, turn: str, table: str, state: State
) -> None:
    await lived_in(tmp_path)
    spoil(tmp_path, f"DELETE FROM {table} WHERE turn = ?", turn)
    assert any(f"turn {turn}" in line and f"back to {state}" in line for line in mended(tmp_path))
    assert (await row_of(tmp_path, turn)).state is state


async def test_a_turn_without_a_next_state_in_a_session_that_is_over_is_dropped(tmp_path: Path) -> None:
    await lived_in(tmp_path)
    spoil(tmp_path, "UPDATE sessions SET end_why = 'idle', ended_s = 9 WHERE id = 'key:s0'")
    spoil(tmp_path, "DELETE FROM next_states WHERE turn = 'paired0'")
    mended(tmp_path)
    assert (await row_of(tmp_path, "paired0")).reason is DropReason.NO_NEXT_STATE


@pytest.mark.parametrize("turn", ["served0", "paired0", "judged0", "ready0"])
async def test_a_turn_whose_text_is_damaged_is_dropped_and_never_trained(tmp_path: Path, turn: str) -> None:
    await lived_in(tmp_path)
    spoil(tmp_path, BODY, turn)
    (line,) = mended(tmp_path)
    assert line.startswith(f"turn {turn}") and "drop it as damaged" in line
    store = await Store.open(tmp_path)
    counts = await store.counts()
    assert counts["dropped.damaged"] == 1 and counts["main"] == 14
    assert turn not in [sample.turn for sample in await store.ready(limit=9)]
    assert await store.turn("one0") is not None
    await store.aclose()


async def test_columns_that_changed_behind_a_turns_text_are_noticed(tmp_path: Path) -> None:
    await lived_in(tmp_path)
    spoil(tmp_path, "UPDATE turns SET version = 'shared.2' WHERE id = 'served0'")
    store = await Store.open(tmp_path)
    with pytest.raises(StoreError, match="other columns than it was written with"):
        await store.turn("served0")
    await store.aclose()


async def test_a_long_text_that_changed_takes_the_turns_that_hold_it_with_it(tmp_path: Path) -> None:
    await lived_in(tmp_path)
    spoil(tmp_path, "UPDATE texts SET body = substr(body, 1, 30)")
    lines = mended(tmp_path)
    assert "is not what was written" in lines[0] and len(lines) == 15


@pytest.mark.parametrize("harm", ["gone", "truncated", "flipped"])
async def test_a_damaged_version_is_marked_and_the_nearest_whole_one_is_served(tmp_path: Path, harm: str) -> None:
    await lived_in(tmp_path)
    folder = tmp_path / "versions" / "shared.2"
    weights = folder / "adapter_model.safetensors"
    data = bytearray(weights.read_bytes())
    if harm == "gone":
        shutil.rmtree(folder)
    elif harm == "truncated":
        weights.write_bytes(data[:-5])
    else:
        data[-1] ^= 4
        weights.write_bytes(data)
    lines = mended(tmp_path)
    assert lines[-1] == "version shared.2 is to be served but cannot be | serve shared.1"
    store = await Store.open(tmp_path)
    assert await store.current(SHARED) == PolicyVersion(SHARED, 1)
    row = await store.version(PolicyVersion(SHARED, 2))
    assert row is not None and row.status is VersionStatus.REFUSED and "missing or damaged" in row.why
    await store.aclose()


async def test_a_folder_that_was_moved_finds_its_versions_again(tmp_path: Path) -> None:
    await lived_in(tmp_path / "old")
    (tmp_path / "old").rename(tmp_path / "new")
    assert check_home(tmp_path / "new").findings == ()  # the store holds no path of where it was made
    store = await Store.open(tmp_path / "new")
    row = await store.version(PolicyVersion(SHARED, 2))
    assert row is not None and row.folder == tmp_path / "new" / "versions" / "shared.2"
    await store.aclose()


async def test_what_a_crash_left_unfinished_is_put_aside_and_nothing_else(tmp_path: Path) -> None:
    await lived_in(tmp_path)
    for name in ("shared.3", "shared.4.tmp", "notes"):
        (tmp_path / "versions" / name).mkdir()
    (tmp_path / "server.json.new").write_text("")
    assert len(mended(tmp_path)) == 3
    assert sorted(path.name for path in (tmp_path / "versions").iterdir()) == ["notes", "shared.1", "shared.2"]
    aside = sorted(path.name.rpartition(".")[0] for path in (tmp_path / "aside").iterdir())
    assert aside == ["server.json.new", "shared.3", "shared.4.tmp"]


async def test_a_turn_trained_by_two_versions_is_told_and_left(tmp_path: Path) -> None:
    await lived_in(tmp_path)
    spoil(tmp_path, "UPDATE versions SET turns = (SELECT turns FROM versions WHERE number = 1) WHERE number = 2")
    report = check_home(tmp_path, repair=True)
    assert "turn one0 was trained twice: for shared.1 and for shared.2" in [item.what for item in report.findings]
    assert not report.is_sound


async def test_an_index_that_disagrees_with_its_table_is_made_again(tmp_path: Path) -> None:
    await lived_in(tmp_path)
    spoil(tmp_path, "PRAGMA writable_schema=ON")
    path = tmp_path / "store.db"
    data = path.read_bytes()
    at = data.index(b"served0", data.index(b"served0") + 1)  # in the table or in an index: one of them disagrees
    path.write_bytes(data[:at] + b"zerved0" + data[at + 7 :])
    report = check_home(tmp_path, repair=True)
    assert report.findings
    assert check_home(tmp_path).is_sound


async def test_a_store_with_torn_pages_is_put_aside_and_what_can_be_read_is_carried_over(tmp_path: Path) -> None:
    await lived_in(tmp_path, sessions=40)
    path = tmp_path / "store.db"
    data = bytearray(path.read_bytes())
    for page in (len(data) // 4096 // 2, len(data) // 4096 // 2 + 3):
        data[page * 4096 : page * 4096 + 128] = b"\xff" * 128
    path.write_bytes(data)
    found = check_home(tmp_path)
    assert "is damaged" in found.findings[0].what and not found.is_sound
    report = check_home(tmp_path, repair=True)
    assert report.findings[0].is_mended
    assert put_aside(tmp_path)
    store = await Store.open(tmp_path)
    kept = [row.turn.id for row in await store.history(limit=1000)]
    assert len(kept) > 230  # of 280: what lay in the two torn pages is gone, not what SQLite finds through them
    await store.aclose()


async def test_what_is_wrong_with_a_store_is_said_in_one_line(tmp_path: Path) -> None:
    await lived_in(tmp_path, sessions=40)
    path = tmp_path / "store.db"
    data = bytearray(path.read_bytes())
    seen = []
    for page in range(2, len(data) // 4096, 5):  # some of it shows to SQLite, in several lines
        torn = bytearray(data)
        torn[page * 4096 + 9] ^= 0x55
        path.write_bytes(torn)
        seen += [item.what for item in check_home(tmp_path).findings]
    assert any("is damaged: " in what for what in seen)
    assert not any("\n" in what or "***" in what for what in seen)


async def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    await lived_in(tmp_path)
    store = await Store.open(tmp_path)
    with pytest.raises(StoreError, match="in use"):
        check_home(tmp_path)
    await store.aclose()


async def test_a_store_of_a_newer_program_is_not_touched(tmp_path: Path) -> None:
    await lived_in(tmp_path)
    spoil(tmp_path, "PRAGMA user_version=999")
    with pytest.raises(StoreError, match="newer version of openclaw-rl"):
        check_home(tmp_path, repair=True)


async def test_the_command_tells_by_its_exit_code(tmp_path: Path) -> None:
    await lived_in(tmp_path)
    run = CliRunner()
    assert run.invoke(app, ["check", "--home", str(tmp_path)]).exit_code == 0
    spoil(tmp_path, BODY, "served0")
    told = run.invoke(app, ["check", "--home", str(tmp_path)])
    assert told.exit_code == 1 and "check --repair" in told.stderr
    assert run.invoke(app, ["check", "--repair", "--json", "--home", str(tmp_path)]).exit_code == 0


@pytest.mark.parametrize("version", ["shared.1", "shared.2"])
@pytest.mark.parametrize(
    "harm",
    [
        f"{TRAINER_STATE} gone",
        f"{TRAINER_STATE} turned",
        f"{TRAINER_STATE} cut",
        f"{TRAINER_FACTS} cut",
        f"{TRAINER_FACTS} gone",
    ],
)
async def test_a_damaged_trainer_state_goes_aside_and_its_version_stays(
    tmp_path: Path, harm: str, version: str
) -> None:
    await lived_in(tmp_path, fill=with_state)
    assert check_home(tmp_path).findings == ()
    folder = tmp_path / "versions" / version
    name, how = harm.split()
    data = (folder / name).read_bytes()
    if how == "gone":
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(data[:-3] if how == "cut" else bytes([data[0] ^ 4]) + data[1:])
    assert not check_beside(tmp_path).is_sound
    (line,) = mended(tmp_path)
    assert line.startswith(f"the trainer's state of version {version} is damaged") and "fresh moments" in line
    assert not (folder / TRAINER_STATE).exists() and not (folder / TRAINER_FACTS).exists()
    assert len(names_aside(tmp_path, f"{version}.trainer_state.")) == (1 if how == "gone" else 2)
    store = await Store.open(tmp_path)
    assert await store.current(SHARED) == PolicyVersion(SHARED, 2)
    assert {row.status for row in await store.versions()} == {VersionStatus.LIVE}
    await store.aclose()


@pytest.mark.parametrize("data", [b'[{"name": "ann', b"\xff\xfe", b'[{"name": "\xff"}]', b""])
async def test_a_damaged_file_of_keys_goes_aside_and_it_is_said_what_that_means(tmp_path: Path, data: bytes) -> None:
    await lived_in(tmp_path)
    (tmp_path / "keys.json").write_bytes(data)
    assert not check_beside(tmp_path).is_sound
    (found,) = check_home(tmp_path).findings
    assert "restore it from a backup; or remove it, and create the keys again" in found.mend
    (line,) = mended(tmp_path)
    assert "keys.json cannot be read" in line and "the keys in it no longer work" in line
    (aside,) = names_aside(tmp_path, "keys.json.")
    assert (tmp_path / "aside" / aside).read_bytes() == data and kept_keys(tmp_path) == ()


@pytest.mark.parametrize("harm", ["folder", "empty", "bytes"])
async def test_a_key_that_no_server_can_use_goes_aside(tmp_path: Path, harm: str) -> None:
    await lived_in(tmp_path)
    if harm == "folder":
        (tmp_path / "api_key").mkdir()
    else:
        (tmp_path / "api_key").write_bytes(b"" if harm == "empty" else b"\xff\xfe\x00")
    assert not check_beside(tmp_path).is_sound
    (line,) = mended(tmp_path)
    assert "api_key" in line and "a new key is made at the next start" in line
    assert len(names_aside(tmp_path, "api_key.")) == 1 and kept_key(tmp_path)
