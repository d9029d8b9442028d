"""The key that is made at the first start: shown once, to a person at a terminal, and never written to a log."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

from flow_parts import scripted_model

START_S = 120.0


def _started(home: Path, out: Path, *, is_terminal: bool) -> str:
    """What `openclaw-rl serve` says until it serves, to a terminal or into a file."""
    command = [sys.executable, "-m", "openclaw_rl", "serve", "--home", str(home), "--port", "0", "--no-learn"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm", "COLUMNS": "300"}
    environment.pop("SGLANG_API_KEY", None)
    shown, terminal = pty.openpty()
    with out.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=terminal if is_terminal else log, env=environment)
    os.close(terminal)
    os.set_blocking(shown, False)
    said, until = "", time.monotonic() + START_S
    try:
        while "API key" not in said and time.monotonic() < until and process.poll() is None:
            time.sleep(0.05)
            said = said + _read(shown) if is_terminal else out.read_text("utf-8")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        said = said + _read(shown) if is_terminal else out.read_text("utf-8")
        os.close(shown)
    return said


def _read(handle: int) -> str:
    try:
        return os.read(handle, 1 << 16).decode("utf-8", "replace")
    except (BlockingIOError, OSError):
        return ""


async def test_a_log_never_holds_the_key(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    async with scripted_model() as (_, config):
        (home / "config.toml").write_text(config, "utf-8")
        for _ in range(2):
            said = await asyncio.to_thread(_started, home, tmp_path / "log", is_terminal=False)
            key = (home / "api_key").read_text("utf-8").strip()
            assert f"the API key is in {home / 'api_key'}" in said
            assert len(key) > 20 and key not in said


async def test_a_person_is_shown_it_at_the_first_start_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    async with scripted_model() as (_, config):
        (home / "config.toml").write_text(config, "utf-8")
        first = await asyncio.to_thread(_started, home, tmp_path / "log", is_terminal=True)
        key = (home / "api_key").read_text("utf-8").strip()
        assert first.count(key) == 1 and "shown this once" in first
        again = await asyncio.to_thread(_started, home, tmp_path / "log", is_terminal=True)
        assert key not in again and "the API key is in" in again
