"""`openclaw-rl pool` as it is typed: a server that is found by its folder, shown, drained and stopped."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli_parts import said

from openclaw_rl.errors import ConfigError, OpenClawRLError

TASKS = Path(__file__).parent.parent.parent / "examples" / "tasks" / "code"
START = "from openclaw_rl.cli import main; main()"


@contextmanager
def serving(home: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server's process, and what it printed once it listened; stopped at the end."""
    options = ["--home", str(home), "--box", "plain", "--port", "0", "--workers", "1", "--tasks", str(TASKS), *words]
    process = subprocess.Popen(
        [sys.executable, "-c", START, "pool", "serve", *options], stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if line.startswith("environments at"):
                break
        yield process, "".join(lines)
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
        assert process.wait(60) == 0


def test_a_pool_is_found_by_its_folder_shown_drained_and_stopped(tmp_path: Path) -> None:
    home = tmp_path / "pool"
    with serving(home, "--capacity", "3") as (_, printed):
        assert "http://127.0.0.1:" in printed
        key = home / "api_key"
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert key.read_text("utf-8").strip() not in printed
        shown = said("pool", "status", "--home", str(home))
        assert "0 of 3" in shown
        assert "1 in code" in shown
        found = json.loads(said("pool", "status", "--json", "--home", str(home)))
        assert (found["state"], found["capacity"], found["sources"]) == ("open", 3, {"code": 1})
        assert "the pool is draining" in said("pool", "drain", "--home", str(home))
        assert json.loads(said("pool", "drain", "--json", "--undo", "--home", str(home)))["state"] == "open"
        url = printed.split()[2].rstrip(";")
        assert "0 of 3" in said("pool", "status", url, "--api-key", key.read_text("utf-8").strip())
        with pytest.raises(ConfigError, match="refuses the key"):
            said("pool", "status", url, "--api-key", "wrong")
    with pytest.raises(ConfigError, match="no pool runs on"):
        said("pool", "status", "--home", str(home))


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (("--host", "0.0.0.0"), "can be reached from other machines"),
        (("--kind", "nothing"), "names no kind"),
        (("--tasks", "nowhere"), "is not a folder"),
        (("--tasks", "openclaw_rl.nothing:sources"), "names nothing that can be imported"),
        (("--kind", "x=openclaw_rl:nothing"), "names nothing that can be imported"),
    ],
)
def test_what_cannot_be_served_is_said_before_anything_starts(
    tmp_path: Path, words: tuple[str, ...], match: str
) -> None:
    with pytest.raises(OpenClawRLError, match=match):
        said("pool", "serve", "--home", str(tmp_path / "pool"), "--box", "plain", "--port", "0", *words)


def test_a_pool_that_is_away_and_a_key_that_is_not_known_are_said(tmp_path: Path, unused_tcp_port: int) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}"
    with pytest.raises(ConfigError, match="is not known"):
        said("pool", "status", url, "--home", str(tmp_path))
    with pytest.raises(OpenClawRLError, match="does not answer"):
        said("pool", "status", url, "--home", str(tmp_path), "--api-key", "k")
