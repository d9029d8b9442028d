"""The evaluation as a user starts it, only shorter: the real server, the bundled model, one session of each user."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = ["eval", "personalization", "--mode", "joint", "--method", "frozen", "--seeds", "1", "--sessions", "1"]


def started(folder: Path) -> subprocess.CompletedProcess[str]:
    options = ["--probes", "2", "--folder", str(folder), "--report", str(folder / "report.html")]
    return subprocess.run(
        [sys.executable, "-m", "openclaw_rl", *COMMAND, *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def test_it_ends_with_its_figures_and_a_page_and_what_is_finished_is_not_run_again(tmp_path: Path) -> None:
    first = started(tmp_path)
    assert first.returncode == 0, first.stderr
    figures = json.loads(first.stdout)
    assert set(figures["methods"]["frozen"]) == {"about", "student", "assistant", "teacher"}
    assert (figures["refused"], figures["unsettled_sessions"], figures["best_method"]) == (0, 0, None)
    moments = figures["methods"]["frozen"]["student"]["moments"]
    assert (moments["before"]["problems"], moments["end"]["wish"]) == (2, 0)
    assert figures["methods"]["frozen"]["student"]["accuracy_drop_points_end"] == 0  # nothing was learned
    assert "frozen-0-all" in first.stderr
    assert "</html>" in (tmp_path / "report.html").read_text("utf-8")
    again = started(tmp_path)
    assert "kept from an earlier run" in again.stderr
    assert json.loads(again.stdout)["methods"] == figures["methods"]


@pytest.mark.parametrize("when", ["at once", "later"])
def test_one_that_is_ended_leaves_no_server_behind(tmp_path: Path, when: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ENDED, str(tmp_path), when],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as run:
        assert run.stdout is not None
        server = int(run.stdout.readline())
        if when == "later":
            os.kill(server, 0)
            run.send_signal(signal.SIGTERM)
        assert run.wait(timeout=120) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)


# The command, with a line on standard output for the server's process as soon as there is one. Ended "at once", the
# signal comes before the line that started the server has returned.
ENDED = """
import os, signal, subprocess, sys
from openclaw_rl.cli import app

class Popen(subprocess.Popen):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if "serve" in args[0]:
            print(self.pid, flush=True)
            if sys.argv[2] == "at once":
                os.kill(os.getpid(), signal.SIGTERM)

subprocess.Popen = Popen
app(["eval", "personalization", "--mode", "joint", "--method", "frozen", "--folder", sys.argv[1]])
"""
