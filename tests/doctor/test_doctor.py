"""openclaw-rl doctor on real folders, sound and broken; nothing it looks at is changed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from typer.testing import CliRunner

from openclaw_rl.cli import app as app_of_commands
from openclaw_rl.core.adapter import TRAINER_STATE
from openclaw_rl.core.manifest import versions_folder
from openclaw_rl.core.version import PolicyVersion
from openclaw_rl.doctor.install import free_bytes, wanted_bytes
from openclaw_rl.doctor.learning import Level
from openclaw_rl.doctor.report import DoctorReport, examine
from openclaw_rl.errors import StoreError
from openclaw_rl.evals.server import free_port
from openclaw_rl.home.folder import Address, address_of, check_key, kept_key, note_address
from openclaw_rl.store.db import Store
from openclaw_rl.store.lock import FolderLock
from openclaw_rl.store.rows import StepRecord, VersionRow, VersionStatus
from openclaw_rl.testing.folders import lived_in, with_state
from openclaw_rl.testing.turns import a_turn


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder whose server listens on a port that is free."""
    (tmp_path / "config.toml").write_text(f"[serve]\nport = {free_port()}\n", "utf-8")
    return tmp_path


def mend(report: DoctorReport) -> list[tuple[str, str]]:
    return [(item.stage, item.said) for item in report.findings if item.level is Level.MEND]


async def served(home: Path, *names: str, session: str = "key:s") -> None:
    store = await Store.open(home)
    for name in names:
        await store.add_turn(a_turn(name, session=session), chain=name)
    await store.aclose()


async def test_a_folder_that_was_never_used_is_healthy(home: Path) -> None:
    report = await examine(home)
    assert (mend(report), report.is_healthy, report.is_live) == ([], True, False)
    assert report.story == "nothing has been served yet"
    assert os.listdir(home) == ["config.toml"]
    body = report.as_json()
    assert body["healthy"] is True
    assert isinstance(body["libraries"], dict)
    assert body["libraries"]["openclaw-rl"] is not None


async def test_a_folder_that_was_used_tells_why_nothing_is_learned(home: Path) -> None:
    kept_key(home)
    await served(home, *(f"t{number}" for number in range(20)))
    before = (home / "store.db").read_bytes()
    report = await examine(home)
    assert not report.is_healthy
    assert [said for stage, said in mend(report)] == [
        "none of 20 main turns has a next state: no request continued from a served reply",
        "the last 20 main turns all belong to one session",
    ]
    assert report.story.startswith("20 main turns, 0 have a next state, 0 judged 0, 0 ready; a step needs 1; ")
    assert (home / "store.db").read_bytes() == before


async def test_a_wrong_setting_a_taken_port_and_an_open_key_are_told(home: Path) -> None:
    kept_key(home)
    (home / "api_key").chmod(0o644)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        (home / "config.toml").write_text(f"[serve]\nport = {port}\n", "utf-8")
        told = mend(await examine(home))
    assert [stage for stage, _ in told] == ["key", "port"]
    assert told[0][1].endswith("can be read by others")
    assert f"cannot listen on 127.0.0.1:{port}" in told[1][1]
    (home / "config.toml").write_text("[serve]\nprot = 1\n", "utf-8")
    assert ("settings", "serve.prot is not a setting") in mend(await examine(home))


async def test_a_damaged_store_and_one_of_another_program_are_told(home: Path) -> None:
    await served(home, "t")
    path = home / "store.db"
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\x00" * 4096 + whole[8192:])
    assert [stage for stage, _ in mend(await examine(home))] == ["store"]
    path.write_bytes(b"no database at all" * 500)
    assert [stage for stage, _ in mend(await examine(home))] == ["store"]


async def test_an_adapter_that_is_not_what_its_step_wrote_is_told(home: Path) -> None:
    folder = home / "versions" / "shared.1"
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text("{}", "utf-8")
    (folder / "adapter_model.safetensors").write_bytes(b"weights")
    store = await Store.open(home)
    version = PolicyVersion("shared", 1)
    row = VersionRow(version, PolicyVersion("shared", 0), folder, "0" * 64, VersionStatus.CANDIDATE, "", 1.0)
    await store.commit_step(StepRecord("1", 0.0, 1.0, (), (), {}, row))
    await store.settle(version, VersionStatus.LIVE, "passed", {})
    await store.aclose()
    ((stage, said),) = mend(await examine(home))
    assert stage == "publish"
    assert said.startswith("the adapter of version shared.1 is not what its step wrote")


async def test_a_version_whose_folder_is_gone_is_named_with_one_advice(home: Path) -> None:
    store = await Store.open(home)
    version = PolicyVersion("shared", 1)
    folder = home / "versions" / "shared.1"
    row = VersionRow(version, PolicyVersion("shared", 0), folder, "0" * 64, VersionStatus.CANDIDATE, "", 1.0)
    await store.commit_step(StepRecord("1", 0.0, 1.0, (), (), {}, row))
    await store.settle(version, VersionStatus.LIVE, "passed", {})
    await store.aclose()
    (found,) = [item for item in (await examine(home)).findings if item.level is Level.MEND]
    assert found.said == "the adapter of version shared.1 cannot be read: No such file or directory"
    assert "check --repair" in found.fix and "rollback" not in found.fix


async def test_keys_that_cannot_be_read_are_told(home: Path) -> None:
    (home / "api_key").write_bytes(b"\xff\xfe")
    (home / "api_key").chmod(0o600)
    (home / "keys.json").write_text("{", "utf-8")
    key, others = [said for stage, said in mend(await examine(home)) if stage == "key"]
    assert "api_key cannot be read" in key
    assert others.startswith("others cannot connect: ") and "keys.json cannot be read" in others


@pytest.mark.parametrize("harm", ["folder", "empty", "bytes"])
async def test_a_key_that_cannot_be_used_is_reported_with_the_advice_that_serve_gives(home: Path, harm: str) -> None:
    if harm == "folder":
        (home / "api_key").mkdir(mode=0o700)
    else:
        (home / "api_key").write_bytes(b"" if harm == "empty" else b"\xff\xfe")
    (found,) = [item for item in (await examine(home)).findings if item.level is Level.MEND]
    assert found.stage == "key" and "api_key" in found.said
    if harm == "empty":  # a start makes a key in its place
        assert kept_key(home) and check_key(home)
        return
    with pytest.raises(StoreError) as refused:
        kept_key(home)
    assert (found.said, found.fix) == (refused.value.problem, refused.value.fix)


@pytest.mark.parametrize("harm", ["gone", "turned"])
async def test_a_damaged_trainer_state_of_the_served_version_is_reported(home: Path, harm: str) -> None:
    await lived_in(home, fill=with_state)
    assert mend(await examine(home)) == []
    state = home / "versions" / "shared.2" / TRAINER_STATE
    if harm == "gone":
        state.unlink()
    else:
        state.write_bytes(b"Moments")
    (found,) = [item for item in (await examine(home)).findings if item.level is Level.MEND]
    assert found.said.startswith("the trainer's state of version shared.2 is damaged")
    assert "check --repair" in found.fix


async def test_doctor_gives_the_advice_that_every_other_command_gives_about_a_damaged_store(home: Path) -> None:
    await served(home, *(f"t{number}" for number in range(9)))
    path = home / "store.db"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    (found,) = [item for item in (await examine(home)).findings if item.stage == "store"]
    with pytest.raises(StoreError) as told:
        await Store.open(home)
    assert (found.said, found.fix) == (told.value.problem, told.value.fix)


async def test_where_all_was_forgotten_nobody_reads_that_nothing_was_ever_served(home: Path) -> None:
    await served(home, "t")
    with closing(sqlite3.connect(home / "store.db")) as sql, sql:
        sql.execute("DELETE FROM turns")
        sql.execute("INSERT INTO forgettings VALUES ('f', 1.0, 'done', '{}')")
    assert (await examine(home)).story == (
        "no turn is stored: what was forgotten is gone, and nothing has been served since"
    )


async def test_a_model_that_lacks_files_is_told(home: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}", "utf-8")
    settings = (home / "config.toml").read_text("utf-8")
    (home / "config.toml").write_text(f'model = "{model}"\n{settings}', "utf-8")
    ((stage, said),) = mend(await examine(home))
    assert (stage, said) == ("model", f"{model} holds no tokenizer.json")


async def test_a_judge_that_does_not_answer_is_told(home: Path) -> None:
    settings = (home / "config.toml").read_text("utf-8")
    (home / "config.toml").write_text(f'{settings}[judge]\nurl = "http://127.0.0.1:9/v1"\n', "utf-8")
    ((stage, said),) = mend(await examine(home))
    assert stage == "judge"
    assert said.startswith("the judge at http://127.0.0.1:9/v1 does not answer")


def test_room_is_wanted_for_three_more_of_the_newest_version(home: Path) -> None:
    assert wanted_bytes(home) == 256 << 20
    assert free_bytes(home / "not" / "there") == free_bytes(home)
    folder = home / "versions" / "shared.1"
    folder.mkdir(parents=True)
    with (folder / "adapter_model.safetensors").open("wb") as sparse:
        sparse.truncate(200 << 20)
    assert wanted_bytes(home) == 600 << 20


async def test_a_running_server_is_asked_and_believed(home: Path) -> None:
    kept_key(home)
    found = {"level": "mend", "stage": "collect", "said": "all 40 turns were side requests", "fix": "say main"}
    body = {"story": "all 40 turns were side requests: there is nothing to learn from", "diagnosis": [found]}

    async def status(request: web.Request) -> web.Response:
        return web.json_response(body)

    app = web.Application()
    app.router.add_get("/v1/rl/status", status)
    lock = FolderLock(home)  # as the server does whose address it is
    async with TestServer(app) as server:
        note_address(home, Address(str(server.make_url("")).rstrip("/"), os.getpid()))
        report = await examine(home)
        assert (report.is_live, report.is_healthy, report.story) == (True, False, body["story"])
        assert mend(report) == [("collect", "all 40 turns were side requests")]
        assert not any(item.stage == "port" for item in report.findings)  # ours listens there
        body = {"story": "", "diagnosis": []}
        assert (await examine(home)).is_healthy
        del body["diagnosis"]
        assert mend(await examine(home)) == [("serve", "the running server is of another version")]
    assert [stage for stage, _ in mend(await examine(home))] == ["serve"]
    lock.free()


async def test_a_copy_of_a_served_folder_is_not_taken_for_the_folder(home: Path, tmp_path: Path) -> None:
    lock = FolderLock(home)
    note_address(home, Address("http://127.0.0.1:1", os.getpid()))
    copy = shutil.copytree(home, tmp_path / "copy")
    assert address_of(home) is not None
    assert address_of(copy) is None  # no command on the copy reaches the server of the original
    lock.free()
    assert address_of(home) is None


def test_the_command_says_it_for_people_and_for_programs(home: Path) -> None:
    asyncio.run(served(home, *(f"t{number}" for number in range(10))))
    told = CliRunner().invoke(app_of_commands, ["doctor", "--home", str(home)])
    assert told.exit_code == 1
    assert "mend  collect   none of 10 main turns has a next state" in told.output
    assert "10 main turns, 0 have a next state" in told.output
    plain = CliRunner().invoke(
        app_of_commands, ["doctor", "--home", str(home / "fresh"), "--config", str(home / "config.toml"), "--json"]
    )
    assert plain.exit_code == 0
    assert json.loads(plain.output)["healthy"] is True


@pytest.mark.parametrize("question", ["is_dir", "is_file"])
def test_a_version_that_is_renamed_while_it_is_looked_at_is_no_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    draft = versions_folder(tmp_path) / "shared.1.part"
    draft.mkdir(parents=True)
    (draft / "adapter_model.safetensors").write_bytes(b"x" * 100)
    ask = getattr(Path, question)

    def asked(path: Path) -> bool:
        answer = bool(ask(path))
        if draft in {path, path.parent} and draft.exists():
            draft.rename(draft.with_name("shared.1"))  # between the question and the next look
        return answer

    monkeypatch.setattr(Path, question, asked)
    assert wanted_bytes(tmp_path) == 256 << 20
    assert not draft.exists()
