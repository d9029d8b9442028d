"""OSWorld's task files: an instruction, preparation steps, and an evaluator; a part of each is supported here."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path

from openclaw_rl.core.message import Json
from openclaw_rl.envs.box.sandbox import Boxes, Sandbox
from openclaw_rl.envs.screen.desktop.client import GuestClient
from openclaw_rl.envs.screen.desktop.desktop import Desktop
from openclaw_rl.envs.screen.desktop.guest import Guest
from openclaw_rl.envs.screen.desktop.guest_screen import GuestScreen
from openclaw_rl.envs.screen.desktop.judging import Evaluator, read_evaluator
from openclaw_rl.envs.screen.screen import BrowserError, Judgement, Screen
from openclaw_rl.envs.task import Resources, Score, Split, Task, TaskTimeouts
from openclaw_rl.envs.tasks.source import Attempt, NoSolutionError, ReadTasks, UnsupportedTaskError, box_of
from openclaw_rl.errors import TaskError

LIMITS = TaskTimeouts(build_s=120.0, agent_s=600.0, judge_s=120.0)
MOST_SLEEP_S = 10.0
Prepares = list[tuple[str, dict[str, Json]]]


class OSWorldTasks(ReadTasks):
    """Tasks of one folder. Each gets its own desktop, or all use the guest at `guest_url`.

    `solution`, our own key in a task's file, is Python with pyautogui that solves it.
    """

    def __init__(self, name: str, files: Mapping[str, Mapping[str, Json]], *, guest_url: str = "") -> None:
        self._url = guest_url
        self._files = files
        self._guests: dict[str, Guest] = {}
        tasks: dict[str, Task] = {}
        broken: dict[str, str] = {}
        for path, file in files.items():
            try:
                task = _task(file)
            except TaskError as problem:
                broken[path] = problem.problem
                continue
            tasks[task.id] = task
        super().__init__(name, tasks, broken)

    async def start(self, task: Task, boxes: Boxes) -> Sandbox | None:
        """A prepared box with the desktop in it. UnsupportedTaskError if the task needs unsupported features."""
        read_evaluator(task.metadata.get("evaluator"))
        prepares = _prepares(task.metadata.get("config"))
        if self._url:
            raise UnsupportedTaskError(
                "a guest on another machine is not a box", fix="open its tasks as an environment"
            )
        guest = await Guest(await Desktop.create(boxes)).open()
        box = guest.desktop.box
        self._guests[box.id] = guest
        client = GuestClient(guest.url)
        try:
            await _prepare(client, prepares)
        except BaseException:
            await self._end(box.id)
            raise
        finally:
            await client.aclose()
        return box

    async def open(self, task: Task, boxes: Boxes | None) -> Screen:
        """The screen of a task's desktop."""
        evaluator = read_evaluator(task.metadata.get("evaluator"))
        if self._url:
            prepares, client = _prepares(task.metadata.get("config")), GuestClient(self._url)
            try:
                await _prepare(client, prepares)
            except BaseException:
                await client.aclose()
                raise
            return GuestScreen(client, evaluator.judgement, _nothing)
        if boxes is None:
            raise BrowserError("a desktop needs a box", fix="open boxes with open_boxes()")
        box = await self.start(task, boxes)
        assert box is not None

        async def close() -> None:
            await self._end(box.id)

        return GuestScreen(GuestClient(self._guests[box.id].url), evaluator.judgement, close)

    async def solve(self, task: Task, attempt: Attempt) -> Attempt:
        """Runs the task's solution. NoSolutionError if it has none."""
        lines = task.metadata.get("solution")
        if not isinstance(lines, list) or not lines:
            raise NoSolutionError("it came without a solution")
        client = self._client(task, attempt)
        try:
            for line in lines:
                await client.python(str(line))
        finally:
            await client.aclose()
        return attempt

    async def judge(self, task: Task, attempt: Attempt) -> Score:
        """The evaluator's verdict. Its commands run on the desktop itself, because no fork has what the desktop
        shows."""
        began = time.monotonic()
        evaluator: Evaluator = read_evaluator(task.metadata.get("evaluator"))
        client = self._client(task, attempt)
        try:
            verdict: Judgement = await evaluator.judgement(client)
        finally:
            await client.aclose()
        return Score(verdict.reward, details=verdict.details, duration_s=time.monotonic() - began)

    def _client(self, task: Task, attempt: Attempt) -> GuestClient:
        guest = self._guests.get(box_of(task, attempt).id)
        if guest is None:
            raise BrowserError("this box has no desktop")
        return GuestClient(guest.url)

    async def _end(self, box: str) -> None:
        guest = self._guests.pop(box, None)
        if guest is not None:
            await guest.aclose()

    async def aclose(self) -> None:
        """Ends the remaining desktops."""
        for box in [*self._guests]:
            await self._end(box)


def is_osworld(path: Path) -> bool:
    """Whether a file looks like one of OSWorld's tasks."""
    try:
        file = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(file, dict) and {"instruction", "evaluator"} <= set(file)


def read_osworld(name: str, paths: list[Path], *, guest_url: str = "") -> OSWorldTasks:
    """The tasks of some files."""
    return OSWorldTasks(name, {path.name: json.loads(path.read_bytes()) for path in paths}, guest_url=guest_url)


def _task(file: Mapping[str, Json]) -> Task:
    name, instruction = file.get("id"), file.get("instruction")
    if not isinstance(name, str) or not isinstance(instruction, str) or not instruction.strip():
        raise TaskError("it has no `id` or no `instruction`")
    if not isinstance(file.get("evaluator"), dict):
        raise TaskError("its `evaluator` is not an object")
    kept = {key: file.get(key) for key in ("config", "evaluator", "solution", "snapshot", "source")}
    metadata: dict[str, Json] = {"kind": "screen", "page": "desktop", "family": str(file.get("snapshot")), **kept}
    split = Split.TEST if file.get("split") == "test" else Split.TRAIN
    return Task(name, instruction, Resources(1_024, 256, 256), LIMITS, metadata, split)


def _prepares(config: Json) -> Prepares:
    """The calls that prepare a task; UnsupportedTaskError for those that need a network or go beyond the protocol."""
    if config is None:
        return []
    if not isinstance(config, list):
        raise TaskError("its `config` is not a list")
    found: Prepares = []
    for one in config:
        kind = one.get("type") if isinstance(one, dict) else None
        parameters = one.get("parameters") if isinstance(one, dict) else None
        if kind not in ("launch", "execute", "command", "sleep", "open", "activate_window", "close_window", "write"):
            raise UnsupportedTaskError(f"its config has `{kind}`, which is not supported here")
        if not isinstance(parameters, dict):
            raise TaskError(f"its config has `{kind}` without parameters")
        found.append((str(kind), parameters))
    return found


async def _prepare(client: GuestClient, prepares: Prepares) -> None:
    for kind, parameters in prepares:
        if kind == "sleep":
            seconds = parameters.get("seconds", 1)
            await asyncio.sleep(min(float(str(seconds)), MOST_SLEEP_S))
        elif kind in ("execute", "command"):
            await client.execute(parameters.get("command") or "", shell=bool(parameters.get("shell")))  # type: ignore[arg-type]
        elif kind == "write":  # our own kind: a small file without a download
            await client.upload(str(parameters.get("path")), str(parameters.get("text", "")).encode())
        else:
            await client.setup({"open": "open_file"}.get(kind, kind), parameters)


async def _nothing() -> None:
    """Does nothing: a guest on another machine keeps running."""
