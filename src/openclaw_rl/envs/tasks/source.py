"""The interface of a source of tasks, and the errors of its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from openclaw_rl.envs.box.sandbox import Boxes, BoxLimits, BoxSpec, ExecResult, KilledBy, Sandbox
from openclaw_rl.envs.task import Failure, Resources, Score, Task
from openclaw_rl.errors import BoxError, TaskError


class UnsupportedTaskError(TaskError):
    """The task is valid, but needs something that is not available here; the message names it."""


class NoSolutionError(TaskError):
    """The task came without a solution."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What is judged of an attempt: the state of its box, its answer in words, or both."""

    box: Sandbox | None = None
    answer: str = ""


class TaskSource(Protocol):
    """Tasks of one kind. TaskError: a task cannot be used. BoxError: a box failed."""

    @property
    def name(self) -> str:
        """The name of the source."""

    @property
    def tasks(self) -> Mapping[str, Task]:
        """The tasks by id."""

    @property
    def broken(self) -> Mapping[str, str]:
        """Tasks that cannot be read, and why."""

    async def start(self, task: Task, boxes: Boxes) -> Sandbox | None:
        """A box in the task's first state, without its tests; None for tasks that need none."""

    async def solve(self, task: Task, attempt: Attempt) -> Attempt:
        """Carries out the task's own solution. NoSolutionError if it has none."""

    async def judge(self, task: Task, attempt: Attempt) -> Score:
        """The verdict. It is reached on a fork: the box does not change."""


class ReadTasks:
    """What sources that read all of their tasks at the start have in common: a name, the tasks, and the broken ones."""

    def __init__(self, name: str, tasks: Mapping[str, Task], broken: Mapping[str, str] | None = None) -> None:
        self._name = name
        self._tasks = dict(tasks)
        self._broken = dict(broken or {})

    @property
    def name(self) -> str:
        """The name of the source."""
        return self._name

    @property
    def tasks(self) -> Mapping[str, Task]:
        """The tasks by id."""
        return self._tasks

    @property
    def broken(self) -> Mapping[str, str]:
        """Tasks that cannot be read, and why."""
        return self._broken


@runtime_checkable
class OpenSource(Protocol):
    """A source that keeps resources open, such as browsers, until it is closed."""

    async def aclose(self) -> None:
        """Releases them; they are opened again when needed."""


def spec_of(resources: Resources, *, workdir: str = "/app", env: Mapping[str, str] | None = None) -> BoxSpec:
    """The spec of a task's box."""
    limits = BoxLimits(
        memory_mb=resources.memory_mb,
        disk_mb=resources.disk_mb,
        processes=resources.processes,
        cpus=resources.cpus,
    )
    return BoxSpec(workdir=workdir, env=env or {}, network=resources.network, limits=limits)


def box_of(task: Task, attempt: Attempt) -> Sandbox:
    """The box of an attempt at a task that needs one."""
    if attempt.box is None:
        raise TaskError(f"task {task.id} is judged by the state of a box", fix="give the box")
    return attempt.box


def in_a_box(done: ExecResult) -> ExecResult:
    """The result of a command; BoxError if it ended because its box ended, which no command in it caused."""
    if done.killed_by is KilledBy.BOX:
        raise BoxError("the box ended while a command ran in it", fix="begin the episode again")
    return done


def no_verdict(done: ExecResult, *, is_sound: bool) -> Score:
    """The score if a grader gave none. If the grader is known to work, the attempt broke it."""
    if done.killed_by is not None:
        what = f"the grader was ended ({done.killed_by}) after {done.duration_s:.1f} s"
    else:
        what = f"the grader ended with {done.exit_status} and gave no verdict"
    said = (done.stderr.text or done.stdout.text).strip()[-500:]
    failure = Failure.AGENT if is_sound else Failure.ENVIRONMENT
    reward = 0.0 if is_sound else None
    return Score(reward, details=f"{what}: {said}", failure=failure, duration_s=done.duration_s)
