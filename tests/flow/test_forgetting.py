"""What was forgotten is in no byte of the folder and in no weight, wherever the work was cut off."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from forgetting_parts import CANARY, Home, files_with, lived, make_home, never_saw, rehearsing, tiny_model

from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.errors import ConfigError, StoreError
from openclaw_rl.home.folder import Address, note_address
from openclaw_rl.owner.forget_offline import forget
from openclaw_rl.owner.inspection import export_to
from openclaw_rl.remake.forget_finish import finish_erasing, rebuild
from openclaw_rl.remake.forget_plan import Certificate
from openclaw_rl.store.forget.book import Phase
from openclaw_rl.store.forget.selection import ForgetTarget
from openclaw_rl.store.lock import FolderLock
from openclaw_rl.store.rows import VersionStatus

pytestmark = pytest.mark.usefixtures("forked_trainers")
CHILD = """
import asyncio, logging, sys
from pathlib import Path
from openclaw_rl.config import Config
from openclaw_rl.remake.forget_finish import finish_erasing, plan_text, rebuild
from openclaw_rl.remake.forget_plan import plan_of
from openclaw_rl.store.db import Store
from openclaw_rl.store.forget.selection import ForgetTarget
from openclaw_rl.trainers.settings import TrainerSettings

home, model, point = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]

def reached(said):
    if point in said:
        print("here", flush=True)
        sys.stdin.read()

class Stops(logging.Handler):
    def emit(self, record):
        reached(record.getMessage())

async def main():
    logging.getLogger("openclaw_rl").addHandler(Stops())
    logging.getLogger("openclaw_rl").setLevel(logging.INFO)
    what = ForgetTarget(user="ann")
    store = await Store.open(home)
    await store.forgettings.begin(what, name="f", at_s=1.0, planned=lambda sql, found: plan_text(
        plan_of(sql, what, found, name="f", at_s=1.0)))
    reached("begun")
    await store.aclose()
    await asyncio.to_thread(finish_erasing, home)
    store = await Store.open(home)
    await rebuild(store, Config(home=home), model)

asyncio.run(main())
"""


def killed_at(point: str, home: Path, model: Path) -> None:
    """Forgets in another process, and kills it where it says or logs this."""
    command = [sys.executable, "-c", CHILD, str(home), str(model), point]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "here\n"
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL


async def remade(home: Home, model: Path) -> Certificate:
    (certificate,) = await rebuild(home.store, home.config, model)
    return certificate


async def test_the_weights_are_those_of_an_installation_that_never_saw_it(
    home: Home, tmp_path: Path, model: Path
) -> None:
    saw = await home.digest(await lived(home, with_canary=True))
    never = await never_saw(tmp_path / "b", model)
    assert saw != never
    assert files_with(home.folder, CANARY)
    await home.erase(ForgetTarget(user="ann"))
    assert files_with(home.folder, CANARY) == []
    assert files_with(home.folder, "turn-of-ann") == []
    assert await home.store.current(SHARED) == PolicyVersion(SHARED, 1)
    assert sorted(path.name for path in (home.folder / "versions").iterdir()) == ["shared.1"]
    certificate = await remade(home, model)
    rows = {row.version.number: row for row in await home.store.versions()}
    assert [rows[number].status for number in (2, 3, 4, 5)] == [VersionStatus.REFUSED] * 2 + [
        VersionStatus.CANDIDATE
    ] * 2
    assert (rows[4].parent, rows[4].turns) == (PolicyVersion(SHARED, 1), ("b3", "b4"))
    assert (rows[5].parent, rows[5].digest) == (PolicyVersion(SHARED, 4), never)
    assert certificate.removed["turns"] == 1
    assert [item.version for item in certificate.versions_removed] == ["shared.2", "shared.3"]
    assert [(item.was, item.version, item.parent, item.samples) for item in certificate.rebuilt] == [
        ("shared.2", "shared.4", "shared.1", 2),
        ("shared.3", "shared.5", "shared.4", 1),
    ]
    (kept,) = (home.folder / "certificates").iterdir()
    assert json.loads(kept.read_text())["rebuilt"][1]["digest"] == never
    assert "ann" not in kept.read_text()
    await home.serve_candidates()
    row = await home.store.row("b5")
    assert row is not None and row.trained_version == PolicyVersion(SHARED, 5)
    assert files_with(home.folder, CANARY) == []


async def test_who_forgets_a_turn_forgets_every_version_that_read_it_again(tmp_path: Path, model: Path) -> None:
    home = await make_home(tmp_path / "a", model)
    saw = await home.digest(await rehearsing(home))
    never = await make_home(tmp_path / "b", model)
    clean = await never.digest(await rehearsing(never, with_canary=False))
    assert saw != clean
    await home.erase(ForgetTarget(turn="turn-of-ann"))
    assert files_with(home.folder, CANARY) == files_with(home.folder, "turn-of-ann") == []
    certificate = await remade(home, model)
    assert [item.samples for item in certificate.rebuilt] == [2, 2, 2]
    rows = {row.version.number: row for row in await home.store.versions()}
    assert [rows[number].status for number in (1, 2, 3)] == [VersionStatus.REFUSED] * 3
    assert [(rows[number].turns, rows[number].rehearsed) for number in (4, 5, 6)] == [
        (("b1", "b2"), ()),
        (("b3",), ("b2",)),
        (("b4",), ("b2",)),
    ]
    assert rows[6].digest == clean
    await home.store.aclose()
    await never.store.aclose()


@pytest.mark.parametrize("point", ["begun", "removed the folders", "erased forgetting", "made again"])
async def test_killed_in_the_middle_it_is_finished_at_the_next_start(
    home: Home, tmp_path: Path, model: Path, point: str
) -> None:
    await lived(home, with_canary=True)
    await home.store.aclose()
    killed_at(point, home.folder, model)
    finish_erasing(home.folder)
    assert files_with(home.folder, CANARY) == []
    await home.reopen()
    assert await home.store.turn("turn-of-ann") is None
    certificate = await remade(home, model)
    assert [item.version for item in certificate.rebuilt] == ["shared.4", "shared.5"]
    assert await home.digest(PolicyVersion(SHARED, 5)) == await never_saw(tmp_path / "b", model)
    assert await home.store.forgettings.unfinished() is None
    assert await rebuild(home.store, home.config, model) == []  # and it is done once
    assert len(await home.store.versions()) == 6


async def test_a_version_that_consumed_nothing_else_is_left_out(home: Home, tmp_path: Path, model: Path) -> None:
    await home.say("turn-of-ann", CANARY, user="ann")
    await home.learn()
    await home.say("b1", "one", user="bob")
    await home.learn()
    await home.erase(ForgetTarget(user="ann"))
    certificate = await remade(home, model)
    assert [(item.was, item.version, item.parent) for item in certificate.rebuilt] == [
        ("shared.1", None, "shared.0"),
        ("shared.2", "shared.3", "shared.0"),
    ]
    alone = await make_home(tmp_path / "b", model)
    await alone.say("b1", "one", user="bob")
    never = await alone.digest(await alone.learn())
    assert await home.digest(PolicyVersion(SHARED, 3)) == never
    await alone.store.aclose()


async def test_own_adapters_that_stand_on_a_version_that_saw_it_are_made_again_on_the_new_one(
    tmp_path: Path, model: Path
) -> None:
    own = "user-bob"
    digests = []
    for folder, with_canary in (("a", True), ("b", False)):
        home = await make_home(tmp_path / folder, model)
        await home.say("b1", "one", user="bob", scopes=(SHARED, own))
        if with_canary:
            await home.say("turn-of-ann", CANARY, user="ann", scopes=(SHARED, "user-ann"))
            await home.learn("user-ann")
        await home.learn()
        await home.learn(own)
        await home.say("b2", "two", user="bob")
        await home.learn()
        last = await home.rebase(own)
        if with_canary:
            await home.erase(ForgetTarget(user="ann"))
            assert files_with(home.folder, "user-ann") == []
            await remade(home, model)
            await home.serve_candidates()
            last = await home.store.current(own)
            assert last == PolicyVersion(own, 4)
            row = await home.store.version(last)
            assert row is not None and row.upon == await home.store.current(SHARED) == PolicyVersion(SHARED, 4)
            assert {item.version.scope for item in await home.store.versions()} == {SHARED, own}
        digests.append(await home.digest(last))
        await home.store.aclose()
    assert digests[0] == digests[1]


@pytest.mark.parametrize("is_asked", [True, False])
async def test_records_in_the_folder_are_cleaned_and_those_elsewhere_only_where_that_is_asked_for(
    home: Home, tmp_path: Path, model: Path, is_asked: bool
) -> None:
    await lived(home, with_canary=True)
    await home.store.aclose()
    out, other = home.folder / "records.jsonl", home.folder / "moved.jsonl"
    beside, left = tmp_path / "beside.jsonl", tmp_path / "left.jsonl"
    for path in (out, other, beside if is_asked else left):
        assert await export_to(home.folder, path) == (6, 0)
    other.write_text("somebody else's by now\n")
    await home.reopen()
    await home.erase(ForgetTarget(user="ann"), has_records=is_asked)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["turn_id"] for line in lines] == ["b1", "b2", "b3", "b4", "b5"]
    assert CANARY not in out.read_text()
    assert other.read_text() == "somebody else's by now\n"
    certificate = await remade(home, model)
    if is_asked:
        assert (certificate.records, certificate.records_left, certificate.records_elsewhere) == (2, 1, ())
        assert CANARY not in beside.read_text()
    else:  # a copy of the folder must not change what the original wrote elsewhere
        assert (certificate.records, certificate.records_left) == (1, 1)
        assert certificate.records_elsewhere == (str(left),)
        assert CANARY in left.read_text()


async def test_another_model_than_the_one_that_was_trained_is_refused(home: Home, tmp_path: Path, model: Path) -> None:
    await lived(home, with_canary=True)
    await home.erase(ForgetTarget(user="ann"))
    with pytest.raises(ConfigError, match="was trained on the model bytes, but other was given"):
        await rebuild(home.store, home.config, tiny_model(tmp_path / "other"))
    held = await home.store.forgettings.unfinished()
    assert held is not None and held.phase is Phase.REBUILDING
    assert (await remade(home, model)).finished_at is not None  # nothing is lost by it


async def test_nobody_but_the_server_forgets_while_it_runs(tmp_path: Path, model: Path) -> None:
    home = await make_home(tmp_path / "a", model)
    await home.say("turn-of-ann", CANARY, user="ann")
    await home.store.aclose()
    lock = FolderLock(home.folder)  # as a running server holds it
    note_address(home.folder, Address("http://127.0.0.1:1", os.getpid()))
    with pytest.raises(
        StoreError, match=r"a server runs on .* cannot be erased from outside. Run `openclaw-rl forget`"
    ):
        await forget(home.config, ForgetTarget(user="ann"))
    lock.free()
    certificate = await forget(home.config, ForgetTarget(user="ann"))  # no version saw it: no model is needed
    assert (certificate.removed["turns"], certificate.rebuilt, certificate.finished_at is not None) == (1, (), True)
    assert files_with(home.folder, CANARY) == []


async def test_a_folder_that_no_step_was_committed_for_goes_where_it_learned_from_it(home: Home) -> None:
    await lived(home, with_canary=True)
    versions = home.folder / "versions"
    shutil.copytree(versions / "shared.2", versions / "shared.7")  # as a crash between its renaming and the commit
    shutil.copytree(versions / "shared.1", versions / "shared.8")  # never saw it
    for number, name in ((7, "shared.7"), (8, "shared.8")):
        manifest = json.loads((versions / name / "manifest.json").read_text())
        (versions / name / "manifest.json").write_text(json.dumps(manifest | {"version": f"shared.{number}"}))
    await home.erase(ForgetTarget(user="ann"))
    assert sorted(path.name for path in versions.iterdir()) == ["shared.1", "shared.8"]


async def test_what_an_external_trainer_sent_to_a_server_that_was_killed_is_forgotten_too(home: Home) -> None:
    await lived(home, with_canary=True)
    lease = home.folder / "handed-back" / "of-a-killed-server"
    lease.mkdir(parents=True)
    (lease / "adapter_model.safetensors").write_bytes(f"weights that learned {CANARY}".encode())
    await home.erase(ForgetTarget(user="ann"))
    assert not lease.parent.exists()
