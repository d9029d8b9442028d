"""Repository tasks in rows: a library as an archive, a patch that breaks it, and its own tests as the judge."""

from __future__ import annotations

import asyncio
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from openclaw_rl.envs.box.sandbox import Boxes, Sandbox, Snapshot
from openclaw_rl.envs.task import Resources, Score, Task, TaskTimeouts
from openclaw_rl.envs.tasks.rows import Row, read_rows, text_of
from openclaw_rl.envs.tasks.source import Attempt, box_of, spec_of
from openclaw_rl.errors import BoxError, TaskError

JUDGE_S = 600.0
STEP_S = 120.0
RESOURCES = Resources(memory_mb=1024, disk_mb=256)
REPORT = ".tests-report.xml"
# Files that steer the tests wherever they lie: those of the archive count, others are removed before judging.
STEERING = ("conftest.py", "pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml", ".pytest.ini", "sitecustomize.py")
START = (
    "patch -p1 --quiet && git init -q . && git add -A -f && "
    "git -c user.name=start -c user.email=start@localhost commit -q -m start"
)


@dataclass(frozen=True, slots=True)
class RepoTask:
    """What a row holds."""

    task: Task
    archive: Path
    bug_patch: str
    test_path: str
    test_cmd: str


class RepoTasks:
    """The tasks of one file; its archives lie beside it."""

    def __init__(self, path: Path) -> None:
        self._name = path.parent.name
        self._rows, self._broken = read_rows(path, lambda row: _read(row, path.parent))
        self._unpacked = tempfile.TemporaryDirectory(prefix="openclaw-rl-repos-")
        self._trees: dict[Path, Path] = {}
        self._starts: dict[str, asyncio.Task[Snapshot]] = {}

    @property
    def name(self) -> str:
        """What they are called together."""
        return self._name

    @property
    def tasks(self) -> Mapping[str, Task]:
        """The tasks, by id."""
        return {name: row.task for name, row in self._rows.items()}

    @property
    def broken(self) -> Mapping[str, str]:
        """What cannot be read, and why."""
        return self._broken

    async def start(self, task: Task, boxes: Boxes) -> Sandbox:
        """A box with the broken library, committed. Each library is put in once."""
        row = self._rows[task.id]
        key = f"{row.archive} {id(boxes)}"
        if key not in self._starts:
            self._starts[key] = asyncio.get_running_loop().create_task(self._prepared(row, boxes))
        box = await boxes.create(spec_of(task.resources), at=await asyncio.shield(self._starts[key]))
        done = await box.exec(START, timeout_s=STEP_S, stdin=row.bug_patch.encode())
        if not done.is_ok:
            await box.aclose()
            raise TaskError(f"the start state cannot be made: {(done.stderr.text or done.stdout.text).strip()[-300:]}")
        return box

    async def _prepared(self, row: RepoTask, boxes: Boxes) -> Snapshot:
        box = await boxes.create(spec_of(row.task.resources))
        try:
            await box.upload(self._tree(row.archive), ".")
            return await box.snapshot()
        finally:
            await box.aclose()

    def _tree(self, archive: Path) -> Path:
        """The archive's content without its top folder."""
        if archive not in self._trees:
            place = Path(self._unpacked.name) / archive.name
            try:
                with tarfile.open(archive) as file:
                    file.extractall(place, filter="data")
            except (OSError, tarfile.TarError) as problem:
                raise TaskError(f"the archive {archive.name} cannot be read: {problem}") from problem
            tops = [*place.iterdir()]
            self._trees[archive] = tops[0] if len(tops) == 1 and tops[0].is_dir() else place
        return self._trees[archive]

    async def solve(self, task: Task, attempt: Attempt) -> Attempt:
        """Takes the patch back."""
        patch = self._rows[task.id].bug_patch.encode()
        done = await box_of(task, attempt).exec("patch -p1 -R --quiet", timeout_s=STEP_S, stdin=patch)
        if not done.is_ok:
            raise TaskError(f"the patch cannot be taken back: {done.stdout.text.strip()[-300:]}")
        return attempt

    async def judge(self, task: Task, attempt: Attempt) -> Score:
        """Restores the tests in a fork and runs them all; every one must have run and passed."""
        row = self._rows[task.id]
        fork = await box_of(task, attempt).fork()
        try:
            await self._restore(row, fork)
            command = f"{row.test_cmd} --junitxml={REPORT}"
            done = await fork.exec(command, timeout_s=task.limits.judge_s, env={"PYTHONNOUSERSITE": "1"})
            try:
                report = await fork.read(REPORT)
            except (FileNotFoundError, BoxError):
                report = b""
            ran, failed = _counts(report)
            passed = done.is_ok and ran > 0 and failed == 0
            said = done.stdout.text.strip()[-1000:]
            return Score(float(passed), {"ran": ran, "failed": failed}, said, duration_s=done.duration_s)
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


def _pick(tree: Path, target: Path, test_path: str) -> None:
    """Copies the tests of a tree and what steers them."""
    tests = tree / test_path
    if tests.is_dir():
        shutil.copytree(tests, target / test_path, dirs_exist_ok=True)
    for path in [tests] if tests.is_file() else []:
        shutil.copy2(path, target / test_path)
    for name in STEERING:
        for path in tree.rglob(name):
            (target / path.relative_to(tree)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target / path.relative_to(tree))


def _counts(report: bytes) -> tuple[int, int]:
    """How many tests ran, and how many of them did not pass; what cannot be read counts as none."""
    try:
        suites = ElementTree.fromstring(report).iter("testsuite")
    except ElementTree.ParseError:
        return 0, 0
    ran = failed = 0
    for suite in suites:
        ran += int(suite.get("tests", "0")) - int(suite.get("skipped", "0"))
        failed += int(suite.get("failures", "0")) + int(suite.get("errors", "0"))
    return ran, failed


def _read(row: Row, folder: Path) -> tuple[str, RepoTask]:
    name = text_of(row, "id")
    archive = folder / text_of(row, "archive")
    if not archive.is_file():
        raise TaskError(f"the archive {archive.name} is missing")
    metadata = {key: row[key] for key in ("repo", "licence", "kind", "operator", "file", "function") if key in row}
    limits = TaskTimeouts(agent_s=1800.0, judge_s=JUDGE_S)
    task = Task(name, text_of(row, "instruction"), resources=RESOURCES, limits=limits, metadata=metadata)
    return name, RepoTask(task, archive, text_of(row, "bug_patch"), text_of(row, "test_path"), text_of(row, "test_cmd"))
