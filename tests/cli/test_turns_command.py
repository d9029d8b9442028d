"""`openclaw-rl turns` on a folder that no server runs on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openclaw_rl.cli import app
from openclaw_rl.core.ledger import DropReason
from openclaw_rl.core.turn import TurnKind
from openclaw_rl.errors import ConfigError
from openclaw_rl.store.db import Store
from openclaw_rl.testing.turns import a_turn


@pytest.fixture
def home(tmp_path: Path) -> Path:
    async def make() -> None:
        store = await Store.open(tmp_path)
        await store.add_turn(a_turn("one"), chain="one")
        await store.add_turn(a_turn("two"), chain="two", reason=DropReason.EMPTY)
        await store.add_turn(a_turn("three", kind=TurnKind.SIDE), chain="three")
        await store.aclose()

    asyncio.run(make())
    return tmp_path


def run(home: Path, *words: str) -> str:
    done = CliRunner().invoke(app, ["turns", *words, "--home", str(home)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_the_newest_turns_are_listed_with_what_became_of_them(home: Path) -> None:
    assert [row["id"] for row in json.loads(run(home, "--json"))] == ["three", "two", "one"]
    assert [row["id"] for row in json.loads(run(home, "--json", "--limit", "1"))] == ["three"]
    assert [row["id"] for row in json.loads(run(home, "--json", "--state", "dropped"))] == ["two"]
    (dropped,) = [line for line in run(home).splitlines() if " two " in line]
    assert "dropped" in dropped and "empty" in dropped


def test_an_id_is_listed_whole_in_a_pipe(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def add() -> None:
        store = await Store.open(home)
        await store.add_turn(a_turn("t" * 40, session="key:" + "s" * 60), chain="long")
        await store.aclose()

    asyncio.run(add())
    monkeypatch.setenv("COLUMNS", "80")
    (line,) = [line for line in run(home).splitlines() if "t" * 40 in line]
    assert "key:" + "s" * 60 in line


def test_one_turn_is_explained_in_words(home: Path) -> None:
    said = run(home, "chatcmpl-two")
    assert "empty" in said and "{" not in said
    assert json.loads(run(home, "two", "--json"))["reason"] == "empty"


@pytest.mark.parametrize(("words", "problem"), [(("nobody",), "no turn nobody"), (("--state", "lost"), "not a state")])
def test_what_is_not_there_is_said_with_what_to_do(home: Path, words: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as told:
        run(home, *words)
    assert told.value.fix
