"""Versions seen, kept, gone back to and frozen, by commands on a folder that no server runs on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openclaw_rl.cli import app
from openclaw_rl.core.message import Json
from openclaw_rl.core.version import BASE, SHARED, PolicyVersion
from openclaw_rl.errors import ConfigError
from openclaw_rl.owner.versions import paged, read_prompts
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import StepRecord, VersionRow, VersionStatus
from openclaw_rl.testing.folders import a_small_adapter, add_version

ONE, TWO, THREE = (PolicyVersion(SHARED, number) for number in (1, 2, 3))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Versions 1 and 2 in a row, and a refused one beside 2."""

    async def make() -> None:
        store = await Store.open(tmp_path)
        for version, parent in ((ONE, BASE), (TWO, ONE), (THREE, ONE)):
            metrics = {"loss": 0.25, "gate_kl": 0.5}
            row = VersionRow(version, parent, None, "d", VersionStatus.CANDIDATE, "", 1.0, (), metrics)
            await store.commit_step(StepRecord(f"step {version}", 1.0, 2.0, (), (), {}, row))
            is_good = version != THREE
            status, why = (VersionStatus.LIVE, "passed the gate") if is_good else (VersionStatus.REFUSED, "too far")
            await store.settle(version, status, why, {})
            if is_good:
                await store.set_current(version, why=why)
        await store.aclose()

    asyncio.run(make())
    return tmp_path


def run(home: Path, *words: str) -> str:
    done = CliRunner().invoke(app, [*words, "--home", str(home)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def told(home: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(run(home, "versions", "--json"))
    return found


def test_versions_stand_under_what_they_were_made_from_with_what_became_of_them(home: Path) -> None:
    lines = run(home, "versions", "--turns").splitlines()
    assert [line.index("shared") for line in lines if "shared." in line] == [0, 4, 8, 8]
    assert [word in lines[3] for word in ("shared.2", "served", "passed the gate")] == [True] * 3
    assert [line.split()[-len(line.split("shared.")[1].split()) + 1] for line in lines if "shared." in line] == [
        *("passed", "passed", "served", "refused")
    ]
    assert not any("live" in line for line in lines)
    assert "too far" in lines[5]
    assert "loss 0.25, nats from base 0.5" in lines[2]


def test_the_newest_versions_are_shown_and_all_where_that_is_asked_for(home: Path) -> None:
    lines = run(home, "versions", "--limit", "2")
    assert "shared.2" in lines and "shared.3" in lines
    assert "shared.1  an earlier version" in lines
    assert "versions made before shared.2 are not shown; --all shows them\nserved: shared.2" in lines
    assert len(json.loads(run(home, "versions", "--json", "--limit", "2"))["versions"]) == 2
    everything = json.loads(run(home, "versions", "--json", "--all"))
    assert [row["number"] for row in everything["versions"]] == [0, 1, 2, 3]
    assert "not shown" not in run(home, "versions")


def test_no_version_of_a_long_row_is_cut_off_at_the_width_of_the_terminal(tmp_path: Path) -> None:
    async def make() -> None:
        store = await Store.open(tmp_path)
        for number in range(1, 41):
            await add_version(store, tmp_path, number, a_small_adapter, ())
        await store.aclose()

    asyncio.run(make())
    lines = run(tmp_path, "versions")
    assert all(f"shared.{number} {'served' if number == 40 else 'passed'}" in lines for number in range(41))


def test_pages_are_put_together_in_their_order() -> None:
    rows = [{"version": f"shared.{number}"} for number in range(1203)]

    async def read(limit: int, before: str | None) -> dict[str, Json]:
        end = len(rows) if before is None else int(before.removeprefix("shared."))
        start = max(0, end - limit)
        page: list[Json] = [*rows[start:end]]
        current: dict[str, Json] = {"shared": "shared.7", f"user-{start}": "x"}
        return {"versions": page, "before": f"shared.{start}" if start else None, "current": current}

    whole = asyncio.run(paged(read, None))
    assert (whole["versions"], whole["before"]) == (rows, None)
    assert whole["current"] == {"shared": "shared.7", "user-703": "x", "user-203": "x", "user-0": "x"}
    some = asyncio.run(paged(read, 700))
    assert (some["versions"], some["before"]) == (rows[-700:], "shared.503")


def test_a_pin_is_served_and_shown_until_it_is_lifted(home: Path) -> None:
    assert "shared.1 will be served from the next start on" in run(home, "pin", "1")
    found = told(home)
    assert (found["pins"], found["current"]) == ({SHARED: "shared.1"}, {SHARED: "shared.1"})
    assert "pinned" in run(home, "versions")
    with pytest.raises(ConfigError, match=r"shared\.1 is pinned"):
        run(home, "rollback", "2")
    assert "shared.2 will be served" in run(home, "unpin")
    assert told(home)["pins"] == {}
    run(home, "rollback", "1")
    assert told(home)["current"] == {SHARED: "shared.1"}


def test_what_cannot_be_served_is_refused_in_plain_words(home: Path) -> None:
    with pytest.raises(ConfigError, match=r"shared\.3 was refused: too far"):
        run(home, "pin", "3")
    with pytest.raises(ConfigError, match="no version of shared is pinned"):
        run(home, "unpin")
    with pytest.raises(ConfigError, match="is not a version"):
        run(home, "pin", "three")


def test_freezing_is_told_and_lifted(home: Path) -> None:
    assert told(home)["frozen_since"] is None
    assert "nothing is trained" in run(home, "freeze")
    assert isinstance(told(home)["frozen_since"], float)
    assert "training is frozen" in run(home, "versions")
    assert "training continues" in run(home, "unfreeze")
    assert told(home)["frozen_since"] is None


def test_prompts_are_read_a_line_each_as_text_or_json(tmp_path: Path) -> None:
    path = tmp_path / "prompts"
    path.write_text('How many?\n\n{"prompt": "Two\\nlines?"}\n{"other": 1}\n', "utf-8")
    assert read_prompts(path) == ["How many?", "Two\nlines?", '{"other": 1}']
    with pytest.raises(ConfigError, match="cannot be read"):
        read_prompts(tmp_path / "none")
