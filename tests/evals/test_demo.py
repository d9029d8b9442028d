"""The demonstration as a user starts it, only shorter: the real server, the bundled model, one or two sessions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

KEYS = {"sessions", "converged_at", "refused", "versions", "seconds", "conditions"} | {
    f"{what}_{when}" for what in ("wish", "accuracy") for when in ("before", "after")
}
DEMO = """
import asyncio, signal, sys
from pathlib import Path
from openclaw_rl.evals.demo.run import run_demo
signal.signal(signal.SIGINT, signal.default_int_handler)  # as at a terminal, also where a shell started us behind
asyncio.run(run_demo(Path(sys.argv[1]), sessions=int(sys.argv[2]), problems=4))
"""


def started(out: Path, sessions: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", DEMO, str(out), str(sessions)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def test_the_demo_ends_with_its_figures_and_a_page(tmp_path: Path) -> None:
    with started(tmp_path / "demo", 2) as demo:
        out, story = demo.communicate(timeout=240)
    assert demo.returncode == 0, story
    figures = json.loads(out)
    assert figures == json.loads((tmp_path / "demo" / "report.json").read_text("utf-8"))
    assert set(figures) >= KEYS
    assert (figures["sessions"], figures["refused"]) == (2, 0)
    assert "session 2" in story
    assert "answers right" in story
    assert "</html>" in (tmp_path / "demo" / "report.html").read_text("utf-8")


def test_a_demo_that_is_interrupted_tells_what_it_has_and_leaves_no_server(tmp_path: Path) -> None:
    with started(tmp_path / "demo", 24) as demo:
        assert demo.stderr is not None
        for line in demo.stderr:
            if line.startswith("session 2"):
                break
        children = _children(demo.pid)
        demo.send_signal(signal.SIGINT)
        out, _ = demo.communicate(timeout=120)
    assert demo.returncode != 0
    assert json.loads(out)["sessions"] == 1
    assert json.loads((tmp_path / "demo" / "report.json").read_text("utf-8"))["sessions"] == 1
    assert children
    assert not any(_is_running(child) for child in children)


def _children(pid: int) -> list[int]:
    """Those a process started, by the kernel's own account."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
