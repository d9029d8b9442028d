"""Commands as people call them."""

from __future__ import annotations

from typer.testing import CliRunner

from openclaw_rl.cli import app
from openclaw_rl.errors import OpenClawRLError


def said(*words: str) -> str:
    """What the command writes. An error for people is raised."""
    done = CliRunner().invoke(app, words)
    if isinstance(done.exception, OpenClawRLError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout + done.stderr
