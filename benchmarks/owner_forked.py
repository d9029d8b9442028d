"""Calls of the program without starting an interpreter for each: a fork that has imported everything already."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from benchmarks.owner_commands import Call
from benchmarks.owner_run import HUNG, LIMIT_S, Place, Run, judged, typed

SIGNALLED = 128


def preload() -> None:
    """Imports what quick commands import, and starts nothing: threads would not be there in a fork."""
    import transformers.configuration_utils  # doctor reads a model's configuration, which takes seconds to import

    from openclaw_rl import cli
    from openclaw_rl.doctor import check as checking
    from openclaw_rl.doctor import report as doctor
    from openclaw_rl.home import keys
    from openclaw_rl.owner import forget_offline as forgetting
    from openclaw_rl.owner import hints as hint_keeping
    from openclaw_rl.owner import inspection
    from openclaw_rl.owner import versions as undoing

    assert all(
        (transformers.configuration_utils, cli, checking, doctor, forgetting, hint_keeping, inspection, keys, undoing)
    )


def run_forked(place: Place, call: Call, *, is_sound: bool = False) -> Run:
    """What the call said. Only for quick ones: a fork of this process has one thread, and loads no model."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="owner-fork-") as folder:
        out, errors = Path(folder) / "out", Path(folder) / "err"
        pid = os.fork()
        if pid == 0:
            _call(typed(place, call), place, out, errors)
        code = _waited(pid, begin + LIMIT_S[call.cost])
        said = [path.read_text("utf-8", "replace") if path.exists() else "" for path in (out, errors)]
    done = Run(place.situation, call.name, code, said[0], said[1], round(time.monotonic() - begin, 3))
    return place.note(judged(done, call.command, is_sound=is_sound))


def _call(words: Sequence[str], place: Place, out: Path, errors: Path) -> None:
    """The child: the command itself, its words and its files; never returns."""
    code = 1
    try:
        for path, number in ((out, 1), (errors, 2)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        os.environ.clear()
        os.environ.update(place.environment())
        os.chdir(place.person)
        sys.argv = ["openclaw-rl", *words]
        from openclaw_rl.cli import main

        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _waited(pid: int, until: float) -> int:
    """The child's exit code."""
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else SIGNALLED - code
        time.sleep(0.005)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return HUNG
