"""Weights that were pruned are made again, bit for bit, by replay and where forgetting rebuilds from them."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from forgetting_parts import CANARY, Home, make_home
from test_forgetting import files_with, killed_at
from typer.testing import CliRunner

from openclaw_rl.cli import app
from openclaw_rl.core.adapter import WEIGHTS
from openclaw_rl.core.manifest import version_folder
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.errors import AdapterError, ConfigError
from openclaw_rl.owner.versions import roll_back
from openclaw_rl.publish.pruning import Pruning
from openclaw_rl.publish.settings import PublishSettings
from openclaw_rl.publish.swap import ServedVersions
from openclaw_rl.publish.versions import verified
from openclaw_rl.remake.forget_finish import rebuild
from openclaw_rl.remake.forget_plan import Certificate
from openclaw_rl.remake.replay import restore
from openclaw_rl.store.forget.book import WHY_GIVEN_UP
from openclaw_rl.store.forget.selection import ForgetTarget
from openclaw_rl.store.mend.check import check_rows
from openclaw_rl.store.rows import VersionStatus
from openclaw_rl.testing.engine import ScriptedEngine

pytestmark = pytest.mark.usefixtures("forked_trainers")
ONE, TWO, THREE = (PolicyVersion(SHARED, number) for number in (1, 2, 3))


async def taught(home: Home, *, canary_at: int = 0, without: tuple[int, ...] = (), steps: int = 5) -> PolicyVersion:
    """So many steps over a turn of bob's each; the canary is among what one of them consumed."""
    last = PolicyVersion(SHARED, 0)
    for number in range(1, steps + 1):
        if number == canary_at:
            await home.say("turn-of-ann", CANARY, user="ann")
        if number not in without:
            await home.say(f"b{number}", f"words {number}", user="bob")
            last = await home.learn()
    return last


async def pruned(home: Home) -> list[str]:
    """Prunes all but the newest of each scope; the names of those whose weights went."""
    served = ServedVersions(home.store, ScriptedEngine([]))
    pruning = Pruning(home.store, served, PublishSettings(keep_versions=1, watch_turns=0), home.folder)
    return [str(version) for version in await pruning.once()]


def with_weights(home: Home) -> list[str]:
    return sorted(path.parent.name for path in home.folder.glob(f"versions/*/{WEIGHTS}"))


async def forgotten(home: Home, model: Path, what: ForgetTarget, *, is_serving: bool = False) -> Certificate:
    """What `forget` does, the gate left out; with `is_serving` versions are made again while a server runs."""
    await home.erase(what)
    served = ServedVersions(home.store, ScriptedEngine([])) if is_serving else None
    if served is not None:
        await served.resume(await home.store.current(SHARED))
    (certificate,) = await rebuild(home.store, home.config, model, served=served)
    if served is not None:
        assert served.current() == await home.store.current(SHARED)
        assert served.current() in served.loaded
    return certificate


async def lose_sample(home: Home, turn: str) -> None:
    """As `store.keep_days` does when the turn is too old."""
    await home.store.aclose()
    with sqlite3.connect(home.folder / "store.db") as sql:
        sql.execute("DELETE FROM samples WHERE turn = ?", (turn,))
    sql.close()
    await home.reopen()


def faults(home: Home) -> list[str]:
    with sqlite3.connect(home.folder / "store.db", isolation_level=None) as sql:
        found = [item.what for item in check_rows(sql, repair=False)]
    sql.close()
    return found


async def test_weights_are_made_again_and_can_be_gone_back_to(home: Home, model: Path) -> None:
    await taught(home, steps=4)
    assert await pruned(home) == ["shared.1", "shared.2", "shared.3"]
    with pytest.raises(AdapterError):  # a version without weights is never taken for fresh ones
        home.trainer.trainer.restore(version_folder(home.folder, TWO))
    await home.store.aclose()
    config = replace(home.config, model=str(model))
    with pytest.raises(AdapterError, match=r"replay --version shared\.2 --restore"):
        await roll_back(home.folder, "2")
    report = await restore(config, TWO)
    assert [(step.version, step.samples, step.missing, step.is_equal) for step in report.steps] == [
        ("shared.1", 1, 0, True),
        ("shared.2", 1, 0, True),
    ]
    assert (report.digest_equal, report.folder) == (True, str(version_folder(home.folder, TWO)))
    assert with_weights(home) == ["shared.2", "shared.4"]
    assert not list(home.folder.glob("replay.tmp*"))
    assert "shared.2 will be served" in await roll_back(home.folder, "2")
    again = await restore(config, THREE)  # from what is there by now
    assert [(step.version, step.is_equal) for step in again.steps] == [("shared.3", True)]
    with pytest.raises(ConfigError, match=r"the weights of shared\.2 were not removed"):
        await restore(config, TWO)
    await home.reopen()
    for version in (TWO, THREE):
        row = await home.store.version(version)
        assert row is not None and row.pruned_s is None
        adapter = row.adapter()
        assert adapter is not None and verified(adapter).version == version
    await home.say("b5", "words 5", user="bob")
    assert await home.learn() == PolicyVersion(SHARED, 5)  # and training goes on from it
    five = await home.store.version(PolicyVersion(SHARED, 5))
    assert five is not None and five.parent == TWO
    for version in (TWO, THREE):  # made long ago
        os.utime(version_folder(home.folder, version) / "manifest.json", (1.0, 1.0))
    assert await pruned(home) == ["shared.4"]  # what was put back stays for some time


async def test_what_cannot_be_made_again_is_said_and_changes_nothing(tmp_path: Path, model: Path) -> None:
    home = await make_home(tmp_path / "a", model)
    await taught(home, steps=4)
    await pruned(home)
    await lose_sample(home, "b2")
    await home.store.aclose()
    words = ["replay", "--version", "3", "--restore", "--home", str(home.folder), "--model", str(model)]
    done = await asyncio.to_thread(CliRunner().invoke, app, words)
    assert done.exit_code == 1, done.output
    report = json.loads(done.output)
    assert [(step["version"], step["missing"], step["is_equal"]) for step in report["steps"]] == [
        ("shared.1", 0, True),
        ("shared.2", 1, False),
    ]
    assert (report["digest_equal"], report["folder"]) == (False, None)
    assert with_weights(home) == ["shared.4"]
    told = (await asyncio.to_thread(CliRunner().invoke, app, ["versions", "--home", str(home.folder)])).output
    assert told.count("`openclaw-rl replay --version shared.1 --restore` makes them again") == 1
    assert told.count("weights not kept; they cannot be made again: 1 sample of shared.2 erased") == 2
    done = await asyncio.to_thread(CliRunner().invoke, app, [*words, "--rank", "8"])
    assert isinstance(done.exception, ConfigError)


async def test_a_sample_that_was_changed_gives_other_weights_and_they_are_not_put_back(
    tmp_path: Path, model: Path
) -> None:
    home = await make_home(tmp_path / "a", model)
    await taught(home, steps=3)
    await pruned(home)
    await home.store.aclose()
    with sqlite3.connect(home.folder / "store.db") as sql:
        held = sql.execute("SELECT body, ids, logp, mask FROM samples WHERE turn = 'b1'").fetchone()
        sql.execute("UPDATE samples SET body = ?, ids = ?, logp = ?, mask = ? WHERE turn = 'b2'", held)
    sql.close()
    report = await restore(replace(home.config, model=str(model)), TWO)
    assert [step.is_equal for step in report.steps] == [True, False]
    assert with_weights(home) == ["shared.3"]


@pytest.mark.parametrize("is_serving", [False, True])
async def test_forgetting_makes_the_weights_again_that_it_rebuilds_from(
    tmp_path: Path, model: Path, is_serving: bool
) -> None:
    home = await make_home(tmp_path / "a", model)
    await taught(home, canary_at=4)
    assert await pruned(home) == ["shared.1", "shared.2", "shared.3", "shared.4"]
    certificate = await forgotten(home, model, ForgetTarget(user="ann"), is_serving=is_serving)
    assert files_with(home.folder, CANARY) == files_with(home.folder, "turn-of-ann") == []
    assert [(item.was, item.version, item.parent) for item in certificate.rebuilt] == [
        ("shared.4", "shared.6", "shared.3"),
        ("shared.5", "shared.7", "shared.6"),
    ]
    assert await home.store.current(SHARED) == THREE
    assert with_weights(home) == ["shared.3", "shared.6", "shared.7"]
    await home.serve_candidates()
    never = await make_home(tmp_path / "b", model)
    assert await home.digest(PolicyVersion(SHARED, 7)) == await never.digest(await taught(never))
    await never.store.aclose()
    await home.store.aclose()
    assert faults(home) == []


async def test_what_cannot_be_made_again_is_rebuilt_too(tmp_path: Path, model: Path) -> None:
    home = await make_home(tmp_path / "a", model)
    await taught(home, canary_at=4)
    await pruned(home)
    await lose_sample(home, "b2")
    certificate = await forgotten(home, model, ForgetTarget(user="ann"))
    assert [(item.was, item.version, item.parent) for item in certificate.rebuilt] == [
        ("shared.1", "shared.6", "shared.0"),
        ("shared.2", None, "shared.6"),
        ("shared.3", "shared.7", "shared.6"),
        ("shared.4", "shared.8", "shared.7"),
        ("shared.5", "shared.9", "shared.8"),
    ]
    rows = {row.version.number: row for row in await home.store.versions()}
    assert [rows[number].why for number in (1, 2, 3)] == [WHY_GIVEN_UP] * 3
    assert [rows[number].status for number in (1, 2, 3)] == [VersionStatus.REFUSED] * 3
    assert with_weights(home) == [f"shared.{number}" for number in (6, 7, 8, 9)]
    left = sorted(path.name for path in (home.folder / "versions").iterdir())
    assert left == with_weights(home)  # what names turns and is of no use any more went too
    await home.serve_candidates()
    assert await home.store.current(SHARED) == PolicyVersion(SHARED, 9)
    never = await make_home(tmp_path / "b", model)
    assert await home.digest(PolicyVersion(SHARED, 9)) == await never.digest(await taught(never, without=(2,)))
    await never.store.aclose()
    await home.store.aclose()
    assert faults(home) == []


async def test_killed_when_the_weights_were_back_but_not_noted_it_is_finished_at_the_next_start(
    home: Home, model: Path
) -> None:
    await taught(home, canary_at=4)
    await pruned(home)
    await home.store.aclose()
    await asyncio.to_thread(killed_at, "restored version", home.folder, model)
    await home.reopen()
    row = await home.store.version(THREE)
    assert row is not None and row.pruned_s is not None
    (certificate,) = await rebuild(home.store, home.config, model)
    assert [item.version for item in certificate.rebuilt] == ["shared.6", "shared.7"]
    assert await home.store.current(SHARED) == THREE
    assert not (home.folder / "rebuilding.tmp").exists()


async def test_own_versions_are_rebuilt_on_what_was_pruned(tmp_path: Path, model: Path) -> None:
    own, digests = "user-bob", []
    for folder, with_b2 in (("a", True), ("b", False)):
        home = await make_home(tmp_path / folder, model)
        await home.say("b1", "one", user="bob", scopes=(SHARED, own))
        await home.learn()
        await home.learn(own)
        if with_b2:
            await home.say("b2", "two", user="bob", scopes=(own,))
            await home.learn(own)
        await home.say("b3", "three", user="bob")
        await home.learn()
        last = await home.rebase(own)
        if with_b2:
            assert await pruned(home) == ["shared.1", "user-bob.1", "user-bob.2"]
            await forgotten(home, model, ForgetTarget(turn="b2"))
            assert await home.store.current(own) == PolicyVersion(own, 1)
            assert await home.store.current(SHARED) == TWO
            await home.serve_candidates()
            last = await home.store.current(own)
            assert last == PolicyVersion(own, 4)
        digests.append(await home.digest(last))
        await home.store.aclose()
    assert digests[0] == digests[1]
