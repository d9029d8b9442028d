"""`openclaw-rl hints` on a folder that no server runs on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openclaw_rl.cli import app
from openclaw_rl.errors import ConfigError
from openclaw_rl.store.db import Store


@pytest.fixture
def home(tmp_path: Path) -> Path:
    async def make() -> None:
        await (await Store.open(tmp_path)).aclose()

    asyncio.run(make())
    return tmp_path


def run(home: Path, *words: str) -> str:
    done = CliRunner().invoke(app, ["hints", *words, "--home", str(home)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def listed(home: Path, *words: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(run(home, "list", "--json", *words))
    return found


def test_hints_are_added_listed_edited_retired_and_removed(home: Path) -> None:
    name = run(home, "add", "Answer in French.", "--user", "ann").split()[0]
    run(home, "add", "Be brief.")
    assert [(item["user"], item["text"]) for item in listed(home)] == [
        ("ann", "Answer in French."),
        ("owner", "Be brief."),
    ]
    assert run(home, "edit", name, "Answer in Greek.").startswith(f"{name} is kept; no hint is in a prompt")
    assert run(home, "retire", name).strip() == f"{name} is retired"
    (kept,) = listed(home, "--user", "ann")
    assert (kept["text"], kept["state"], kept["why"]) == ("Answer in Greek.", "retired", "retired by hand")
    assert "Answer in" in run(home, "list")
    assert run(home, "remove", name).strip() == f"{name} is forgotten"
    assert listed(home, "--user", "ann") == []


def test_hints_are_in_use_only_where_the_settings_put_them_into_prompts(home: Path) -> None:
    name = run(home, "add", "Be brief.").split()[0]
    shown = run(home, "list")
    assert "kept" in shown and "in use" not in shown and "no hint is in a prompt" in shown
    (home / "config.toml").write_text('carry = "memory"\n', "utf-8")
    shown = run(home, "list")
    assert "in use" in shown and "no hint is in" not in shown
    assert run(home, "edit", name, "Be very brief.").strip() == f"{name} is in use"


def test_an_id_is_listed_whole_in_a_narrow_terminal_and_in_a_pipe(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = run(home, "add", "Answer in French. " * 8, "--user", "ann-with-a-long-name@example.org").split()[0]
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    (line,) = [line for line in run(home, "list").splitlines() if name in line]
    assert "ann-with-a-long-name@example.org" in line and "Answer in French. " * 7 in line
    monkeypatch.setenv("TTY_COMPATIBLE", "1")  # as in a terminal
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = run(home, "list")
    assert name in shown and "…" not in shown and len(shown.splitlines()) > 8


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("retire", "hint-none"), "there is no hint hint-none"),
        (("edit", "hint-none", "x y"), "there is no hint hint-none"),
        (("remove", "hint-none"), "there is no hint hint-none"),
        (("add", "  "), "the hint is empty"),
    ],
)
def test_what_cannot_be_done_is_said(home: Path, words: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        run(home, *words)
