"""`make bench-owner`: careful, ordinary acts of an owner, and that none of them costs what was learned.

python -m benchmarks.owner [part of a case's name ...]

Every command of the program is called on a folder that has really learned: on a copy of it while the original serves,
on a moved folder, where nothing can be written, where the disk is full, on damaged folders, with the clock set back,
two at once. After each call the other folders are compared byte for byte, the turns and versions that were sound are
counted, and what was said is looked at. All messages are written to build/owner/messages.md for reading. Finished
cases are kept in build/owner, so that a run that was stopped goes on; other code begins anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from benchmarks import owner_copies, owner_damage, owner_full, owner_together
from benchmarks.common import Figures, conditions, finish, is_quick, progress
from benchmarks.owner_cases import Case
from benchmarks.owner_commands import check_complete
from benchmarks.owner_disks import NoMountError, apart, place_at
from benchmarks.owner_forked import preload
from benchmarks.owner_ground import CONFIG, made
from benchmarks.owner_messages import same, write_messages
from benchmarks.owner_run import CRASHES, Run
from openclaw_rl.store.connection import SCHEMA_VERSION

BUILD = Path("build/owner").resolve()
AT = BUILD / "at"  # where the ground was made, and where it lies in each case
KEPT = BUILD / "kept"
FACTS = "facts.json"
LANES = 2
LIMIT_S = 1800.0  # of one case
LEFT_OUT = "left out: this machine does not let us mount"
Done = dict[str, object]


def main() -> None:
    """Runs the cases, and prints the figures."""
    check_complete()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that cases under way are ended, too
    preload()
    begin = time.monotonic()
    facts = _ground()
    folder = BUILD / "done" / _code()
    for old in (BUILD / "done").glob("*"):
        if old != folder:
            shutil.rmtree(old)
    folder.mkdir(parents=True, exist_ok=True)
    chosen = _chosen(sys.argv[1:])
    _all_run(chosen, folder, facts)
    done = [json.loads((folder / f"{_file(case)}").read_text("utf-8")) for case in chosen]
    runs = [Run(**{**run, "complaints": tuple(run["complaints"])}) for one in done for run in one["runs"]]
    write_messages(BUILD / "messages.md", runs)
    finish(_figures(done, runs) | {"seconds": round(time.monotonic() - begin)})


def _figures(done: list[Done], runs: list[Run]) -> Figures:
    wrong = [run for run in runs if run.complaints]
    said: dict[tuple[str, str], list[str]] = {}
    for run in wrong:
        for text in run.complaints:
            said.setdefault((run.command, same(text)), []).append(run.situation)
    for (command, text), where in said.items():
        progress(f"WRONG {len(where)} times | {command} | {text[:300]} | {'; '.join(dict.fromkeys(where))[:300]}")
    foreign = sum(int(str(one["strayed"])) for one in done)
    return {
        "cases": len(done),
        "cases_left_out": sum(bool(one["left_out"]) for one in done),
        "calls": sum(run.seconds > 0 for run in runs),
        "messages": str((BUILD / "messages.md").relative_to(Path.cwd())),
        "foreign_files_changed": foreign,
        "foreign_bytes_changed": None if foreign else 0,  # files are compared whole: of one that changed nobody counts
        "crashes": sum(
            run.code not in (0, 1, 2) or any(word in run.stdout + run.stderr for word in CRASHES) for run in runs
        ),
        "turns_lost": sum(int(str(one["lost_turns"])) for one in done),
        "sound_versions_lost": sum(int(str(one["lost_versions"])) for one in done),
        "messages_without_a_way": sum("what to do" in text for run in wrong for text in run.complaints),
        "wrong_in_all": sum(len(run.complaints) for run in wrong),
        "wrong_by_command": dict(Counter(run.command for run in wrong)),
        "conditions": conditions("bundled", threads=1, seeds=[0], repeats=1),
    }


def _ground() -> dict[str, str]:
    """Makes the ground where it is not kept from before; the facts about it."""
    sign = hashlib.sha256(f"{CONFIG} {AT} {SCHEMA_VERSION}".encode()).hexdigest()[:12]
    path = KEPT / sign / FACTS
    if not path.is_file():
        progress("making the ground: a server learns for about a minute")
        for folder in (AT, KEPT):
            shutil.rmtree(folder, ignore_errors=True)
        facts = made(AT / "home", AT / "exports", AT / "person")
        shutil.copytree(AT, KEPT / sign / "at", symlinks=True)
        path.write_text(json.dumps(facts), "utf-8")
    facts = json.loads(path.read_text("utf-8"))
    return {str(name): str(value) for name, value in facts.items()} | {"kept": str(KEPT / sign / "at")}


def _code() -> str:
    """A name for the code that is measured and that measures."""
    total = hashlib.sha256()
    root = Path(__file__).resolve().parent.parent
    for path in sorted(
        [*(root / "src").rglob("*.py"), *(root / "src").rglob("*.sql"), *root.glob("benchmarks/ow*.py")]
    ):
        total.update(path.read_bytes())
    return total.hexdigest()[:12]


def _chosen(words: list[str]) -> list[Case]:
    every = [case for part in (owner_copies, owner_full, owner_together, owner_damage) for case in part.cases()]
    if words:
        return [case for case in every if any(word in case.name for word in words)]
    return [case for case in every if case.is_quick or not is_quick()]


def _file(case: Case) -> str:
    return case.name.replace(" ", "-").replace("/", "-") + ".json"


def _all_run(chosen: list[Case], folder: Path, facts: dict[str, str]) -> None:
    """The cases that are not done yet, each in a process of its own, two at a time."""
    waiting = [case for case in chosen if not (folder / _file(case)).is_file()]
    finished, begin = 0, time.monotonic()
    running: dict[int, tuple[Case, float]] = {}
    lanes = LANES if _can_mount(facts) else 1
    try:
        while waiting or running:
            while waiting and len(running) < lanes:
                case = waiting.pop(0)
                running[_forked(case, folder, facts)] = case, time.monotonic()
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid in running:
                case, since = running.pop(pid)
                finished += 1
                if status or not (folder / _file(case)).is_file():
                    raise SystemExit(f"the case {case.name!r} ended with status {status}: {_log(folder, case)[-3000:]}")
                left = (time.monotonic() - begin) / finished * (len(waiting) + len(running))
                progress(f"{_line(folder, case)}, {time.monotonic() - since:.0f} s; about {left / 60:.0f} min left")
            for case, since in running.values():
                if time.monotonic() - since > LIMIT_S:
                    raise SystemExit(f"the case {case.name!r} does not end: {_log(folder, case)[-3000:]}")
            time.sleep(0.05)
    finally:
        for pid in running:
            os.killpg(pid, signal.SIGTERM)


def _line(folder: Path, case: Case) -> str:
    done = json.loads((folder / _file(case)).read_text("utf-8"))
    wrong = sum(len(run["complaints"]) for run in done["runs"])
    return f"{case.name}: {len(done['runs'])} calls, {wrong} wrong{', left out' if done['left_out'] else ''}"


def _log(folder: Path, case: Case) -> str:
    return folder.joinpath(_file(case)).with_suffix(".log").read_text("utf-8", "replace")


def _can_mount(facts: dict[str, str]) -> bool:
    """Whether a child of ours may mount; without that cases share one place, one after the other."""
    pid = os.fork()
    if pid == 0:
        try:
            apart(AT)
        except NoMountError as problem:
            progress(f"cannot mount here ({problem}): read-only folders and full disks are left out")
            os._exit(1)
        os._exit(0)
    can = os.waitpid(pid, 0)[1] == 0
    facts["mounts"] = "yes" if can else ""
    return can


def _forked(case: Case, folder: Path, facts: dict[str, str]) -> int:
    """A child that runs the case and writes what came of it; its id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        log = os.open(folder.joinpath(_file(case)).with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        done = _acted(case, facts)
        partial = folder.joinpath(_file(case)).with_suffix(".part")
        partial.write_text(json.dumps(done), "utf-8")
        partial.rename(folder / _file(case))
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _acted(case: Case, facts: dict[str, str]) -> Done:
    if case.needs_mounts and not facts["mounts"]:
        return {"runs": [], "left_out": LEFT_OUT, "strayed": 0, "lost_turns": 0, "lost_versions": 0}
    if facts["mounts"]:
        apart(AT)
    place = place_at(Path(facts["kept"]), AT, facts, case.name)
    case.act(place)
    return {
        "runs": [asdict(run) for run in place.runs],
        "left_out": "",
        "strayed": place.strayed,
        "lost_turns": place.lost_turns,
        "lost_versions": place.lost_versions,
    }


if __name__ == "__main__":
    main()
