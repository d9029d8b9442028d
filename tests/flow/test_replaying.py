"""Past steps taken again: the same bits, or otherwise where it is asked for."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from forgetting_parts import CANARY, Home, lived, make_home, rehearsing

from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.verdict import Verdict, VerdictSource
from openclaw_rl.core.version import SHARED, PolicyVersion
from openclaw_rl.errors import ConfigError
from openclaw_rl.remake.forget_finish import rebuild
from openclaw_rl.remake.replay import ReplayChanges, ReplayReport, replay
from openclaw_rl.store import codec
from openclaw_rl.store.db import Store
from openclaw_rl.store.forget.selection import ForgetTarget
from openclaw_rl.store.rows import VersionStatus
from openclaw_rl.testing.turns import a_sample, a_turn
from openclaw_rl.trainers.settings import Method

BYTES = "bytes"
pytestmark = pytest.mark.usefixtures("forked_trainers")


async def scored(home: Home, turn: str) -> None:
    """Praise without a hint, ready to be trained on."""
    await home.store.pair(NextState(turn, (message(Role.USER, "thanks"),), NextStateSource.USER))
    await home.store.judge(Verdict(turn, 1, VerdictSource.VOTES))
    told = await home.store.turn(turn)
    assert told is not None
    await home.store.admit(a_sample(told))


async def replayed(home: Home, model: Path | str, **asked: object) -> ReplayReport:
    """A replay of the folder while nobody has it open."""
    await home.store.aclose()
    report = await replay(replace(home.config, model=str(model)), **asked)  # type: ignore[arg-type]
    await home.reopen()
    return report


async def test_the_same_steps_give_the_same_bits(home: Home, tmp_path: Path, model: Path) -> None:
    await lived(home, with_canary=True)
    report = await replayed(home, model, out=tmp_path / "out")
    assert [(step.version, step.samples, step.missing, step.is_equal) for step in report.steps] == [
        ("shared.1", 2, 0, True),
        ("shared.2", 3, 0, True),
        ("shared.3", 1, 0, True),
    ]
    assert report.digest_equal is True
    assert report.steps[-1].digest == await home.digest(PolicyVersion(SHARED, 3))
    assert (tmp_path / "out" / "adapter_model.safetensors").is_file()
    assert not list(home.folder.glob("replay.tmp*"))
    first = await replayed(home, model, version=PolicyVersion(SHARED, 1))
    assert [step.version for step in first.steps] == ["shared.1"]


async def test_what_a_step_read_again_is_read_again_in_its_replay(home: Home, model: Path) -> None:
    last = await home.store.version(await rehearsing(home))
    assert last is not None and last.turns == ("b4",) and set(last.rehearsed) == {"turn-of-ann", "b2"}
    report = await replayed(home, model)
    assert [(step.samples, step.missing, step.is_equal) for step in report.steps] == [
        (3, 0, True),
        (3, 0, True),
        (3, 0, True),
    ]
    whole = await replayed(home, model, change=ReplayChanges(Method.COMBINE, 8), as_version=True)
    four = await home.store.version(PolicyVersion(SHARED, 4))
    assert whole.made == "shared.4" and four is not None
    assert sorted(four.read) == ["b1", "b2", "b3", "b4", "turn-of-ann"]  # each once


async def test_a_sample_that_is_not_what_was_learned_from_shows(home: Home, model: Path) -> None:
    await lived(home, with_canary=False)
    with sqlite3.connect(home.folder / "store.db") as sql:
        mask = codec.unpack(sql.execute("SELECT mask FROM samples WHERE turn = 'b3'").fetchone()[0])
        sql.execute("UPDATE samples SET mask = ? WHERE turn = 'b3'", (codec.pack(mask[:-1] + b"\0"),))
    sql.close()
    report = await replayed(home, model)
    assert [step.is_equal for step in report.steps] == [True, False, False]
    assert report.digest_equal is False


async def test_own_versions_are_replayed_with_the_shared_ones_they_stand_on(tmp_path: Path, model: Path) -> None:
    home, own = await make_home(tmp_path / "a", model), "user-bob"
    await home.say("b1", "one", user="bob", scopes=(SHARED, own))
    await home.learn()
    await home.learn(own)
    await home.say("b2", "two", user="bob")
    await home.learn()
    last = await home.rebase(own)
    report = await replayed(home, model, version=last)
    assert [(step.version, step.is_equal) for step in report.steps] == [
        ("shared.1", True),
        ("user-bob.1", True),
        ("shared.2", True),
        ("user-bob.2", True),
    ]
    await home.store.aclose()


async def test_another_method_and_rank_make_a_version_that_can_be_forgotten_from(
    home: Home, tmp_path: Path, model: Path
) -> None:
    await lived(home, with_canary=True)
    change = ReplayChanges(Method.COMBINE, 8)
    report = await replayed(home, model, change=change, as_version=True)
    assert (report.made, report.digest_equal) == ("shared.4", None)
    four = await home.store.version(PolicyVersion(SHARED, 4))
    assert four is not None and four.folder is not None
    assert (four.status, four.parent) == (VersionStatus.CANDIDATE, PolicyVersion(SHARED, 3))
    assert json.loads((four.folder / "adapter_config.json").read_text())["r"] == 8
    await home.serve_candidates()
    again = await replayed(home, model)  # its own steps are on record too
    assert again.steps[-1].is_equal
    await home.erase(ForgetTarget(user="ann"))
    await rebuild(home.store, home.config, model)
    last = (await home.store.versions())[-1]
    never = await make_home(tmp_path / "b", model)
    await lived(never, with_canary=False)
    other = await replayed(never, model, change=change, as_version=True)
    assert last.turns == ("b1", "b2", "b3", "b4", "b5")
    assert last.digest == await never.digest(PolicyVersion(SHARED, 4))
    assert other.made == "shared.4"
    await never.store.aclose()


async def test_another_model_takes_over_words_and_hints_and_leaves_scores(home: Home, tmp_path: Path) -> None:
    await home.say("b1", "What is 3 + 4?", user="bob")
    await home.store.add_turn(turn := a_turn("b2", session="k:b2", user="bob"), chain="b2")
    await scored(home, turn.id)
    await home.learn()
    with pytest.raises(ConfigError, match="cannot be kept together with those for bytes"):
        await replayed(home, "bundled", as_version=True, is_model_given=True)
    await home.reopen()
    into = tmp_path / "new"
    report = await replayed(home, "bundled", into=into, is_model_given=True)
    assert (report.carried_over, report.made, report.folder) == (1, "shared.1", str(into))
    assert report.left_out == {"only a score, which was for another model's reply": 1}
    store = await Store.open(into)
    assert [hint.text for hint in await store.hints.of_user("bob")] == ["Answer What is 3 + 4? in one word."]
    row = await store.version(PolicyVersion(SHARED, 1))
    assert row is not None and (row.turns, row.status) == (("b1",), VersionStatus.CANDIDATE)
    await store.aclose()


async def test_what_cannot_be_replayed_is_said(tmp_path: Path, model: Path) -> None:
    home = await make_home(tmp_path / "a", model)
    await home.store.aclose()
    config = replace(home.config, model=str(model))
    with pytest.raises(ConfigError, match=r"version shared.0"):
        await replay(config)
    await home.reopen()
    await home.say("a", CANARY, user="ann")
    await home.learn()
    await home.store.aclose()
    with pytest.raises(ConfigError, match="is not empty"):
        await replay(config, out=tmp_path)
    with pytest.raises(ConfigError, match="was trained on the model bytes"):
        await replay(replace(config, model="bundled"))
