"""Repository tasks in rows: a library as an archive, a patch that breaks it, and its own tests as the judge."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.envs.box.archive import ArchiveError, unpack_foreign
from openclaw_rl.envs.box.sandbox import Boxes, Sandbox
from openclaw_rl.envs.task import Resources, Score, Task, TaskTimeouts
from openclaw_rl.envs.tasks.prepared import PreparedState, PreparedStates
from openclaw_rl.envs.tasks.rows import Row, read_rows, text_of
from openclaw_rl.envs.tasks.source import Attempt, ReadTasks, UnsupportedTaskError, box_of, in_a_box, spec_of
from openclaw_rl.envs.tasks.suites import MOST_BYTES, NOTHING, REPORT, WRITES_REPORT, SuiteReport, read_report
from openclaw_rl.errors import BoxError, TaskError

JUDGE_S = 600.0
STEP_S = 120.0
RESOURCES = Resources(memory_mb=1024, disk_mb=256)
LIBRARIES = 10_000  # tasks are based on them: none is ever dropped
# Files that configure tests, in any folder: only those of the archive count, others are removed before judging.
STEERING = ("conftest.py", "pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml", ".pytest.ini", "sitecustomize.py")
START = (
    "patch -p1 --quiet && git init -q . && git add -A -f && "
    "git -c user.name=start -c user.email=start@localhost commit -q -m start"
)


@dataclass(frozen=True, slots=True)
class RepoTask:
    """The content of a row."""

    task: Task
    archive: Path
    bug_patch: str
    test_path: str
    test_cmd: str
    fail_to_pass: frozenset[str]  # as far as names are known
    broken: int | None  # how many tests the patch breaks
    least: int  # how many tests pass in the whole library, 0 if not counted


class RepoTasks(ReadTasks):
    """The tasks of one file; the archives are next to the file."""

    def __init__(self, path: Path) -> None:
        self._rows, broken = read_rows(path, lambda row: _read(row, path.parent))
        super().__init__(path.parent.name, {name: row.task for name, row in self._rows.items()}, broken)
        self._unpacked = Path(tempfile.mkdtemp(prefix="openclaw-rl-repos-"))
        weakref.finalize(self, shutil.rmtree, self._unpacked, ignore_errors=True)
        self._trees: dict[Path, Path] = {}
        self._libraries = PreparedStates(most=LIBRARIES)
        self._states = PreparedStates()

    async def start(self, task: Task, boxes: Boxes) -> Sandbox:
        """A box with the broken library, committed. Each library is unpacked once, and each task is prepared once."""
        row = self._rows[task.id]
        return await self._states.box(task.id, boxes, lambda: self._broken_state(row, boxes))

    async def _broken_state(self, row: RepoTask, boxes: Boxes) -> PreparedState:
        box = await self._libraries.box(str(row.archive), boxes, lambda: self._library(row, boxes))
        try:
            done = in_a_box(await box.exec(START, timeout_s=STEP_S, stdin=row.bug_patch.encode()))
            if not done.is_ok:
                said = (done.stderr.text or done.stdout.text).strip()[-300:]
                raise TaskError(f"the start state cannot be made: {said}")
            return PreparedState(box.spec, await box.snapshot())
        finally:
            await box.aclose()

    async def _library(self, row: RepoTask, boxes: Boxes) -> PreparedState:
        box = await boxes.create(spec_of(row.task.resources))
        try:
            await see_pytest(box)
            await box.upload(self._tree(row.archive), ".")
            return PreparedState(box.spec, await box.snapshot())
        finally:
            await box.aclose()

    def _tree(self, archive: Path) -> Path:
        """The archive's content without its top folder."""
        if archive not in self._trees:
            self._trees[archive] = unpacked(archive, self._unpacked / archive.name)
        return self._trees[archive]

    async def solve(self, task: Task, attempt: Attempt) -> Attempt:
        """Reverts the patch."""
        patch = self._rows[task.id].bug_patch.encode()
        done = await box_of(task, attempt).exec("patch -p1 -R --quiet", timeout_s=STEP_S, stdin=patch)
        if not done.is_ok:
            raise TaskError(f"the patch cannot be reverted: {done.stdout.text.strip()[-300:]}")
        return attempt

    async def judge(self, task: Task, attempt: Attempt) -> Score:
        """Restores the tests in a fork and runs them all; each must run and pass."""
        row = self._rows[task.id]
        fork = await box_of(task, attempt).fork()
        try:
            await self._restore(row, fork)
            command = f"{row.test_cmd} {WRITES_REPORT}"
            done = in_a_box(await fork.exec(command, timeout_s=task.limits.judge_s, env={"PYTHONNOUSERSITE": "1"}))
            try:
                report = read_report(await fork.read(REPORT, most_bytes=MOST_BYTES))
            except (FileNotFoundError, BoxError):
                report = NOTHING
            components = _components(row, report)
            reward = float(done.is_ok and not report.failed and components["passed"] == 1.0)
            said = done.stdout.text.strip()[-1000:]
            return Score(reward, components, said, duration_s=done.duration_s)
        finally:
            await fork.aclose()

    async def _restore(self, row: RepoTask, fork: Sandbox) -> None:
        names = " -o ".join(f"-name {name}" for name in STEERING)
        cleaned = (
            f"rm -rf -- {row.test_path} {REPORT}; find . -path ./.git -prune -o \\( {names} \\) -exec rm -rf {{}} +"
        )
        await fork.exec(cleaned, timeout_s=STEP_S)
        with tempfile.TemporaryDirectory() as folder:
            await asyncio.to_thread(_pick, self._tree(row.archive), Path(folder), row.test_path)
            await fork.upload(Path(folder), ".")


async def see_pytest(box: Sandbox) -> None:
    """UnsupportedTaskError if the box has no pytest: without it every attempt would seem to fail."""
    done = in_a_box(await box.exec("python3 -c 'import pytest'", timeout_s=STEP_S))
    if not done.is_ok:
        raise UnsupportedTaskError(
            "the tests need pytest, which boxes have only where this program's own Python has it",
            fix="install it: pip install 'openclaw-rl[envs]'",
        )


def unpacked(archive: Path, place: Path) -> Path:
    """The path of the archive's content, without its top folder. TaskError if it cannot be read."""
    shutil.rmtree(place, ignore_errors=True)
    try:
        unpack_foreign(archive, place)
    except (OSError, ArchiveError) as problem:
        raise TaskError(f"the archive {archive.name} cannot be read: {problem}") from problem
    tops = [*place.iterdir()]
    return tops[0] if len(tops) == 1 and tops[0].is_dir() else place


def _pick(tree: Path, target: Path, test_path: str) -> None:
    """Copies the tests of a tree and their configuration."""
    tests = tree / test_path
    if tests.is_dir():
        shutil.copytree(tests, target / test_path, dirs_exist_ok=True)
    for path in [tests] if tests.is_file() else []:
        shutil.copy2(path, target / test_path)
    for name in STEERING:
        for path in tree.rglob(name):
            (target / path.relative_to(tree)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target / path.relative_to(tree))


def _components(row: RepoTask, report: SuiteReport) -> dict[str, float]:
    """The tests' result in numbers: `passed` is the share of the broken ones that pass again.

    1 only if every test passes that passed before; a skipped test has not passed.
    """
    ran, failed = report.ran, len(report.failed)
    seen = report.passed | report.skipped | set(report.failed)
    if row.broken and len(row.fail_to_pass) == row.broken and row.fail_to_pass <= seen:
        share = len(row.fail_to_pass & report.passed) / row.broken
    elif row.broken:  # their names are not all known
        share = max(0.0, 1 - failed / row.broken) if ran else 0.0
    else:
        share = len(report.passed) / ran if ran else 0.0
    if not ran or len(report.passed) < row.least or row.fail_to_pass & report.skipped:
        share = min(share, 1 - 1 / max(2, ran))
    newly = sum(name not in row.fail_to_pass for name in report.failed) if row.fail_to_pass else 0
    return {"passed": share, "ran": ran, "failed": failed, "newly_broken": newly}


def _read(row: Row, folder: Path) -> tuple[str, RepoTask]:
    name = text_of(row, "id")
    archive = folder / text_of(row, "archive")
    if not archive.is_file():
        raise TaskError(f"the archive {archive.name} is missing")
    metadata = {key: row[key] for key in ("repo", "licence", "kind", "operator", "file", "function") if key in row}
    limits = TaskTimeouts(agent_s=1800.0, judge_s=JUDGE_S)
    task = Task(name, text_of(row, "instruction"), resources=RESOURCES, limits=limits, metadata=metadata)
    named, broken, least = row.get("fail_to_pass", []), row.get("n_failed"), row.get("n_passed", 0)
    return name, RepoTask(
        task,
        archive,
        text_of(row, "bug_patch"),
        text_of(row, "test_path"),
        text_of(row, "test_cmd"),
        frozenset(str(one) for one in named) if isinstance(named, list) else frozenset(),
        broken if isinstance(broken, int) else None,
        least if isinstance(least, int) else 0,
    )
