"""Tasks in Harbor's layout: task.toml, instruction.md, environment/, tests/test.sh, optionally solution/solve.sh."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.core.message import Json
from openclaw_rl.envs.box.sandbox import Boxes, ExecResult, Sandbox
from openclaw_rl.envs.task import Resources, Score, Split, Task, TaskTimeouts
from openclaw_rl.envs.tasks.building import build
from openclaw_rl.envs.tasks.prepared import PreparedState, PreparedStates
from openclaw_rl.envs.tasks.source import (
    Attempt,
    NoSolutionError,
    ReadTasks,
    UnsupportedTaskError,
    box_of,
    in_a_box,
    no_verdict,
    spec_of,
)
from openclaw_rl.errors import TaskError

MOST_DISK_MB = 1024  # a box's files are in memory: a task that asks for more gets this much
SIZE = re.compile(r"^(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?$", re.IGNORECASE)
MEGABYTES = {"": 1 / (1 << 20), "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0 * 1024}
# Removes files of the agent that could change the verdict from the fork that is judged.
CLEAN = "rm -rf -- /tests /logs/verifier /etc/ld.so.preload && mkdir -p /tests /logs/verifier /logs/agent"
JUDGING = {"PYTHONNOUSERSITE": "1"}
PREPARE_S = 60.0
PASSED_ON = ("mcp_servers",)  # keys of [environment] for the environment of tools


@dataclass(frozen=True, slots=True)
class TaskFiles:
    """The places of a task's files, for every layout."""

    environment: Path
    tests: Path
    run_tests: tuple[str, ...]  # runs in the box after `tests` is copied to /tests
    solution: Path | None  # a folder
    solve: tuple[str, ...] = ("bash", "/solution/solve.sh")
    unsupported: str = ""


class FolderTasks(ReadTasks):
    """Tasks in folders, each with an environment to build, a solution to run and tests to judge by."""

    def __init__(self, name: str, found: Mapping[str, tuple[Task, TaskFiles]], broken: Mapping[str, str]) -> None:
        super().__init__(name, {id_: task for id_, (task, _) in found.items()}, broken)
        self._parts = {id_: parts for id_, (_, parts) in found.items()}
        self._states = PreparedStates()
        self.sound: set[str] = set()  # tasks whose grader has worked

    async def start(self, task: Task, boxes: Boxes) -> Sandbox:
        """A box in the task's first state. Each environment is built once."""
        parts = self._parts[task.id]
        if parts.unsupported:
            raise UnsupportedTaskError(parts.unsupported)

        async def built() -> PreparedState:
            return await build(parts.environment, spec_of(task.resources), boxes, timeout_s=task.limits.build_s)

        return await self._states.box(task.id, boxes, built)

    async def solve(self, task: Task, attempt: Attempt) -> Attempt:
        """Runs the task's own solution."""
        parts, box = self._parts[task.id], box_of(task, attempt)
        if parts.solution is None:
            raise NoSolutionError(f"task {task.id} has no solution")
        await box.upload(parts.solution, "/solution")
        done = in_a_box(await box.exec(list(parts.solve), timeout_s=task.limits.agent_s))
        if done.killed_by is not None:
            raise TaskError(f"the solution was ended ({done.killed_by}) after {done.duration_s:.0f} s")
        return attempt

    async def judge(self, task: Task, attempt: Attempt) -> Score:
        """Puts the tests into a fork, runs them, and reads their verdict."""
        parts = self._parts[task.id]
        fork = await box_of(task, attempt).fork()
        try:
            cleaned = in_a_box(await fork.exec(CLEAN, timeout_s=PREPARE_S, cwd="/"))
            if not cleaned.is_ok:  # the agent left a box in which no command works
                return no_verdict(cleaned, is_sound=True)
            await fork.upload(parts.tests, "/tests")
            done = await fork.exec(list(parts.run_tests), timeout_s=task.limits.judge_s, env=JUDGING)
            in_a_box(done)
            return await self._verdict(task, fork, done)
        finally:
            await fork.aclose()

    async def _verdict(self, task: Task, fork: Sandbox, done: ExecResult) -> Score:
        for name in ("reward.txt", "reward.json"):
            try:
                text = (await fork.read(f"/logs/verifier/{name}", most_bytes=100_000)).decode("utf-8", "replace")
                rewards = _rewards(text, is_json=name.endswith("json"))
            except FileNotFoundError:
                continue
            except ValueError:
                break
            if done.killed_by is None:
                reward = rewards.get("reward", min(rewards.values()))
                said = done.stdout.text.strip()[-1000:]
                return Score(reward, components=rewards, details=said, duration_s=done.duration_s)
        return no_verdict(done, is_sound=task.id in self.sound)


def _rewards(text: str, *, is_json: bool) -> dict[str, float]:
    if not is_json:
        return {"reward": float(text.strip())}
    said = json.loads(text)
    if not isinstance(said, dict) or not said:
        raise ValueError("a verdict is an object of numbers")
    return {str(name): float(value) for name, value in said.items()}


def read_harbor(folder: Path) -> tuple[Task, TaskFiles]:
    """A task in Harbor's layout. TaskError says what is wrong."""
    try:
        content = tomllib.loads((folder / "task.toml").read_text("utf-8"))
        instruction = (folder / "instruction.md").read_text("utf-8")
    except FileNotFoundError as problem:
        raise TaskError(f"{Path(str(problem.filename)).name} is missing") from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise TaskError(f"it cannot be read: {problem}") from problem
    if not (folder / "tests" / "test.sh").is_file():
        raise TaskError("tests/test.sh is missing")
    if not instruction.strip():
        raise TaskError("instruction.md is empty")
    environment = _table(content, "environment")
    has_dockerfile = (folder / "environment" / "Dockerfile").is_file()
    if not has_dockerfile and "docker_image" not in environment:
        raise TaskError("environment/Dockerfile is missing")
    unsupported = "" if has_dockerfile else f"it needs the image {environment['docker_image']}"
    if any((folder / "environment").glob("docker-compose*.y*ml")):
        unsupported = "it needs several containers (docker-compose)"
    task = Task(
        folder.name,
        instruction.strip(),
        resources=Resources(
            memory_mb=_megabytes(environment, "memory", 2048),
            disk_mb=min(MOST_DISK_MB, _megabytes(environment, "storage", MOST_DISK_MB)),
            cpus=_number(environment, "cpus", 0.0) or None,
            network=environment.get("allow_internet") is True,
        ),
        limits=TaskTimeouts(
            build_s=_number(environment, "build_timeout_sec", 600.0),
            agent_s=_number(_table(content, "agent"), "timeout_sec", 600.0),
            judge_s=_number(_table(content, "verifier"), "timeout_sec", 600.0),
        ),
        metadata={**_table(content, "metadata"), **{key: environment[key] for key in PASSED_ON if key in environment}},
        split=Split.TRAIN,
    )
    solution = folder / "solution"
    return task, TaskFiles(
        folder / "environment",
        folder / "tests",
        ("bash", "/tests/test.sh"),
        solution if (solution / "solve.sh").is_file() else None,
        unsupported=unsupported,
    )


def _table(content: Mapping[str, Json], name: str) -> dict[str, Json]:
    value = content.get(name, {})
    if not isinstance(value, dict):
        raise TaskError(f"[{name}] in task.toml is not a table")
    return value


def _number(table: Mapping[str, Json], name: str, default: float) -> float:
    value = table.get(name, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
        raise TaskError(f"{name} in task.toml is {value!r}: a number is needed")
    return float(value)


def _megabytes(table: Mapping[str, Json], name: str, default: int) -> int:
    """`memory_mb = 512` or `memory = "2G"`."""
    text = table.get(name)
    if text is None:
        return max(1, int(_number(table, f"{name}_mb", default)))
    match = SIZE.match(str(text))
    if match is None:
        raise TaskError(f"{name} in task.toml is {text!r}: a size such as 512M or 2G is needed")
    return max(1, int(float(match[1]) * MEGABYTES[match[2].upper()]))
