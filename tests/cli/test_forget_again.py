"""`openclaw-rl forget`, asked again for what is gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

from typer.testing import CliRunner

from openclaw_rl.cli import app
from openclaw_rl.testing.folders import lived_in


def test_what_was_forgotten_before_is_said_so_and_what_never_was_is_an_error(tmp_path: Path) -> None:
    asyncio.run(lived_in(tmp_path))
    run = CliRunner()

    def forget(turn: str) -> tuple[int, str]:
        done = run.invoke(app, ["forget", "--turn", turn, "--yes", "--home", str(tmp_path)])
        return done.exit_code, done.stderr if done.exception is None else str(done.exception)

    assert forget("served0")[0] == 0
    code, said = forget("served0")
    (certificate,) = (tmp_path / "certificates").iterdir()
    assert (code, f"that was forgotten already: {certificate}" in said.replace("\n", "")) == (0, True)
    code, said = forget("nobody")
    assert (code, "there is no turn nobody" in said) == (1, True)
