"""Tasks in SWE-bench's and SWE-Gym's rows: a commit in an image, a patch that solves it, and tests by name."""

from __future__ import annotations

import json
import re
import shlex
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from openclaw_rl.core.message import Json
from openclaw_rl.envs.box.sandbox import Boxes, Sandbox
from openclaw_rl.envs.task import Resources, Score, Task, TaskTimeouts
from openclaw_rl.envs.tasks.prepared import PreparedState, PreparedStates
from openclaw_rl.envs.tasks.rows import Row, read_rows, text_of
from openclaw_rl.envs.tasks.source import Attempt, ReadTasks, UnsupportedTaskError, box_of, in_a_box, spec_of
from openclaw_rl.envs.tasks.suites import MOST_BYTES, NOTHING, REPORT, WRITES_REPORT, read_report
from openclaw_rl.errors import BoxError, TaskError

WORKDIR = "/testbed"
STEP_S = 300.0
RESOURCES = Resources(memory_mb=8192, disk_mb=8192, processes=512)
LIMITS = TaskTimeouts(build_s=3600.0, agent_s=3600.0, judge_s=1800.0)
IMAGE_KEYS = ("image", "image_name", "docker_image")
SWE_BENCH = {  # the repositories of SWE-bench; images of other repositories have SWE-Gym's names
    *("astropy/astropy", "django/django", "matplotlib/matplotlib", "mwaskom/seaborn", "pallets/flask", "psf/requests"),
    *("pydata/xarray", "pylint-dev/pylint", "pytest-dev/pytest", "scikit-learn/scikit-learn"),
    *("sphinx-doc/sphinx", "sympy/sympy"),
}
GIT = "git -c core.hooksPath=/dev/null"  # git hooks of the agent do not run during judging
ACTIVATE = "if [ -f /opt/miniconda3/bin/activate ]; then source /opt/miniconda3/bin/activate testbed; fi; "
PYTEST = f"{ACTIVATE}python3 -m pytest -q -p no:cacheprovider"
# The image may contain later commits, among them the solution: only the start keeps a ref.
START = (
    "git checkout -q --detach && git for-each-ref --format='delete %(refname)' | git update-ref --stdin && "
    "git reflog expire --expire=now --all"
)
CHANGED = re.compile(r"^\+\+\+ b/(\S+)|^--- a/(\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SweTask:
    """The content of a row."""

    task: Task
    image: str
    workdir: str
    base_commit: str
    patch: str
    test_patch: str
    fail_to_pass: frozenset[str]
    pass_to_pass: frozenset[str]
    test_cmd: str


class SweRows(ReadTasks):
    """The tasks of one file. They need docker or podman, which fetches their images."""

    def __init__(self, path: Path) -> None:
        self._rows, broken = read_rows(path, _read)
        super().__init__(path.stem, {name: row.task for name, row in self._rows.items()}, broken)
        self._states = PreparedStates()

    async def start(self, task: Task, boxes: Boxes) -> Sandbox:
        """A box at the commit, without refs to later ones."""
        row = self._rows[task.id]
        others = sorted(name for name in row.fail_to_pass | row.pass_to_pass if "::" not in name)
        if others and row.test_cmd == PYTEST:
            raise UnsupportedTaskError(
                f"its tests do not have pytest's names: {others[0]}",
                fix="add a `test_cmd` to the row that runs them with pytest",
            )
        return await self._states.box(task.id, boxes, lambda: _prepared(row, boxes))

    async def solve(self, task: Task, attempt: Attempt) -> Attempt:
        """Applies the patch."""
        await _apply(box_of(task, attempt), self._rows[task.id].patch, "patch")
        return attempt

    async def judge(self, task: Task, attempt: Attempt) -> Score:
        """Runs the tests in a fork: those that must pass pass, and those that passed before still do."""
        row = self._rows[task.id]
        fork = await box_of(task, attempt).fork()
        try:
            files = {found[0] or found[1] for found in CHANGED.findall(row.test_patch)}
            files |= {name.partition("::")[0] for name in row.fail_to_pass | row.pass_to_pass if "::" in name}
            names = " ".join(map(shlex.quote, sorted(files)))
            back = f'{GIT} checkout -q {shlex.quote(row.base_commit)} -- "$f" 2>/dev/null || rm -f -- "$f"'
            restore = f"for f in {names}; do {back}; done"
            in_a_box(await fork.exec(f"rm -rf {REPORT}; {restore}", timeout_s=STEP_S))
            await _apply(fork, row.test_patch, "test_patch")
            chosen = " ".join(shlex.quote(name) for name in sorted(files) if name.endswith(".py"))
            command = f"{row.test_cmd} {WRITES_REPORT} {chosen}"
            done = in_a_box(await fork.exec(command, timeout_s=task.limits.judge_s))
            try:
                report = read_report(await fork.read(REPORT, most_bytes=MOST_BYTES))
            except (FileNotFoundError, BoxError):
                report = NOTHING
            fixed, kept = row.fail_to_pass & report.passed, row.pass_to_pass & report.passed
            components = {"passed": len(fixed) / len(row.fail_to_pass), "ran": float(report.ran)}
            components["newly_broken"] = float(len(row.pass_to_pass - kept))
            reward = float(fixed == row.fail_to_pass and kept == row.pass_to_pass and done.killed_by is None)
            return Score(reward, components, done.stdout.text.strip()[-1000:], duration_s=done.duration_s)
        finally:
            await fork.aclose()


async def _prepared(row: SweTask, boxes: Boxes) -> PreparedState:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "Dockerfile").write_text(f"FROM {row.image}\n")
        image = await boxes.build_image(Path(folder), timeout_s=row.task.limits.build_s)
    if image is None:
        raise UnsupportedTaskError(f"the task needs the image {row.image}", fix="use docker or podman (--box docker)")
    spec = spec_of(row.task.resources, workdir=row.workdir)
    box = await boxes.create(replace(spec, base=image))
    try:
        done = in_a_box(await box.exec(START, timeout_s=STEP_S))
        if not done.is_ok:
            raise TaskError(f"{row.workdir} in the image is not the repository: {done.stderr.text.strip()[-300:]}")
        return PreparedState(box.spec, await box.snapshot())
    finally:
        await box.aclose()


async def _apply(box: Sandbox, patch: str, name: str) -> None:
    """Applies a patch of the row; TaskError if it does not fit."""
    done = in_a_box(await box.exec(f"{GIT} apply -", timeout_s=STEP_S, stdin=patch.encode()))
    if not done.is_ok:
        raise TaskError(f"`{name}` does not fit the repository: {done.stderr.text.strip()[-300:]}")


def _read(row: Row) -> tuple[str, SweTask]:
    name, repo = text_of(row, "instance_id"), text_of(row, "repo")
    must, keep = _names(row, "FAIL_TO_PASS"), _names(row, "PASS_TO_PASS")
    if not must:
        raise TaskError("`FAIL_TO_PASS` names no test")
    metadata: dict[str, Json] = {key: row[key] for key in ("repo", "version", "created_at", "difficulty") if key in row}
    task = Task(name, text_of(row, "problem_statement"), resources=RESOURCES, limits=LIMITS, metadata=metadata)
    given = [text_of(row, key) for key in IMAGE_KEYS if row.get(key)]
    return name, SweTask(
        task,
        given[0] if given else _image(name, repo),
        text_of(row, "workdir") if "workdir" in row else WORKDIR,
        text_of(row, "base_commit"),
        text_of(row, "patch"),
        text_of(row, "test_patch"),
        must,
        keep,
        text_of(row, "test_cmd") if "test_cmd" in row else PYTEST,
    )


def _image(name: str, repo: str) -> str:
    if repo in SWE_BENCH:
        return f"swebench/sweb.eval.x86_64.{name.replace('__', '_1776_').lower()}:latest"
    return f"xingyaoww/sweb.eval.x86_64.{name.replace('__', '_s_').lower()}:latest"


def _names(row: Row, key: str) -> frozenset[str]:
    """Names of tests: a list, or a list as text, since both are published."""
    value = row.get(key)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as problem:
            raise TaskError(f"`{key}` is not a list: {value[:80]!r}") from problem
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise TaskError(f"`{key}` is {'missing' if value is None else 'not a list of names'}")
    return frozenset(map(str, value))
