"""Screen tasks as a source: rows that name a page, each opened in a browser and judged by the page's own state."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from openclaw_rl.core.message import Json
from openclaw_rl.envs.box.sandbox import Boxes, Sandbox
from openclaw_rl.envs.screen import miniwob
from openclaw_rl.envs.screen.browsers import BrowserOptions, Browsers
from openclaw_rl.envs.screen.families.catalogue import FAMILIES
from openclaw_rl.envs.screen.families.family import STATE, PageAction, judged, page_task
from openclaw_rl.envs.screen.page import BrowserPage, PageTask
from openclaw_rl.envs.screen.screen import ActionError, Judgement, Screen
from openclaw_rl.envs.screen.site import Site
from openclaw_rl.envs.screen.solving import solved
from openclaw_rl.envs.task import Action, Score, Split, Task, TaskTimeouts
from openclaw_rl.envs.tasks.rows import Row, read_rows, text_of
from openclaw_rl.envs.tasks.source import Attempt, NoSolutionError, ReadTasks
from openclaw_rl.errors import TaskError

LIMITS = TaskTimeouts(build_s=60.0, agent_s=300.0, judge_s=60.0)


class ScreenTasks(ReadTasks):
    """Tasks that are done on a screen. The first opened task starts browsers; closing the source ends them.

    `solve` gives the actions of the solution as an answer, and `judge` plays an answer's actions on a new page.
    So every attempt is judged on a copy.
    """

    def __init__(
        self,
        name: str,
        tasks: Iterable[Task],
        *,
        broken: Mapping[str, str] | None = None,
        browser: BrowserOptions | None = None,
    ) -> None:
        super().__init__(name, {task.id: task for task in tasks}, broken)
        self._options = browser
        self._browsers: Browsers | None = None
        self._lock = asyncio.Lock()

    @property
    def browsers(self) -> Browsers:
        """The browsers, which are started as needed."""
        if self._browsers is None:
            self._browsers = Browsers(self._options)
        return self._browsers

    async def open(self, task: Task, boxes: Boxes | None = None) -> Screen:
        """The page of a task. TaskError if it cannot be used, BoxError if no browser is available."""
        page = await asyncio.to_thread(_page, task)
        return await BrowserPage.open(self.browsers, page)

    async def start(self, task: Task, boxes: Boxes) -> Sandbox | None:
        """None: a page needs no box."""
        return None

    async def solve(self, task: Task, attempt: Attempt) -> Attempt:
        """The actions of the solution. NoSolutionError if the task has none."""
        moves = _moves(task)
        screen = await self.open(task)
        try:
            actions = await solved(screen, moves)
        finally:
            await screen.aclose()
        return Attempt(attempt.box, json.dumps([[one.tool, dict(one.arguments)] for one in actions]))

    async def judge(self, task: Task, attempt: Attempt) -> Score:
        """The verdict on a new page after the actions of the answer, a JSON list of [tool, arguments]."""
        began = time.monotonic()
        actions = _actions(attempt.answer)
        screen = await self.open(task)
        try:
            for action in actions:
                await screen.look()
                try:
                    await screen.act(action)
                except ActionError as problem:
                    return Score(0.0, details=str(problem), duration_s=time.monotonic() - began)
            verdict = await screen.judge()
        finally:
            await screen.aclose()
        return Score(verdict.reward, details=verdict.details, duration_s=time.monotonic() - began)

    async def aclose(self) -> None:
        """Ends the browsers."""
        if self._browsers is not None:
            browsers, self._browsers = self._browsers, None
            await browsers.aclose()


def family_tasks(name: str, *, train: int, test: int) -> list[Task]:
    """Tasks of one family. TaskError if there is none of that name."""
    if name not in FAMILIES:
        raise TaskError(f"there is no family of pages {name!r}", fix=f"give one of: {', '.join(FAMILIES)}")
    counts = ((Split.TRAIN, train), (Split.TEST, test))
    return [_family_task(name, seed, split) for split, count in counts for seed in range(count)]


def read_screen_rows(path: Path) -> ScreenTasks:
    """The tasks of a file of rows with `page`; rows that cannot be read are named in `broken`."""
    found, broken = read_rows(path, lambda row: _read(row, path.parent))
    return ScreenTasks(path.stem, found.values(), broken=broken)


def _read(row: Row, folder: Path) -> tuple[str, Task]:
    page = text_of(row, "page")
    split, seed = _split(row.get("split", "train")), row.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TaskError(f"`seed` is {seed!r}, not a whole number")
    if page in FAMILIES:
        task = _family_task(page, seed, split)
    elif page.startswith(miniwob.PREFIX):
        task = miniwob.task_of(page, seed, split)
    elif page.endswith(".html"):
        task = _own_page(row, page, folder, split)
    else:
        raise TaskError(
            f"`page` is {page!r}: neither a family, nor {miniwob.PREFIX}NAME, nor a file that ends in .html"
        )
    return task.id, task


def _split(value: Json) -> Split:
    try:
        return Split(str(value))
    except ValueError as problem:
        raise TaskError(f"`split` is {value!r}, neither train nor test") from problem


def _family_task(name: str, seed: int, split: Split) -> Task:
    plan = FAMILIES[name].plan(seed, split)
    metadata: dict[str, Json] = {"kind": "screen", "page": name, "family": name, "seed": seed}
    metadata["small"] = FAMILIES[name].is_small
    return Task(f"{name}-{split.value}-{seed}", plan.instruction, limits=LIMITS, metadata=metadata, split=split)


def _own_page(row: Row, page: str, folder: Path, split: Split) -> Task:
    """A page that the user made, in a folder next to the rows."""
    file = (folder / page).resolve()
    if not file.is_relative_to(folder.resolve()) or not file.is_file():
        raise TaskError(f"`page` is {page!r}, which is not a file below {folder}")
    wanted = row.get("wanted")
    if not isinstance(wanted, dict) or not wanted:
        raise TaskError("`wanted` contains no state for the page to reach")
    metadata: dict[str, Json] = {"kind": "screen", "page": page, "family": row.get("family", file.parent.name)}
    metadata |= {"folder": str(file.parent), "file": file.name, "wanted": wanted, "moves": row.get("moves")}
    _row_moves(row.get("moves"))
    return Task(text_of(row, "id"), text_of(row, "instruction"), limits=LIMITS, metadata=metadata, split=split)


def _page(task: Task) -> PageTask:
    """The page of a task, from the task alone, so that another machine can open it too."""
    page, seed = task.metadata.get("page"), task.metadata.get("seed", 0)
    if isinstance(page, str) and isinstance(seed, int) and page in FAMILIES:
        return page_task(page, FAMILIES[page].plan(seed, task.split))
    if isinstance(page, str) and isinstance(seed, int) and page.startswith(miniwob.PREFIX):
        return miniwob.page_of(page, seed)
    folder, file, wanted = (task.metadata.get(name) for name in ("folder", "file", "wanted"))
    if not isinstance(folder, str) or not isinstance(file, str) or not isinstance(wanted, dict):
        raise TaskError(f"task {task.id} names no page", fix="its metadata needs `page`, a family of pages")

    def verdict(found: Json) -> Judgement:
        return judged(found, wanted)

    return PageTask(Site(file, folder=Path(folder), is_proven=False), STATE, verdict)


def _moves(task: Task) -> tuple[PageAction, ...]:
    page, seed = task.metadata.get("page"), task.metadata.get("seed", 0)
    if isinstance(page, str) and isinstance(seed, int) and page in FAMILIES:
        return FAMILIES[page].plan(seed, task.split).moves
    moves = _row_moves(task.metadata.get("moves"))
    if not moves:
        raise NoSolutionError("it came without a solution")
    return moves


def _row_moves(value: Json) -> tuple[PageAction, ...]:
    """The moves of a row: objects with the fields of PageAction."""
    if value is None:
        return ()
    try:
        assert isinstance(value, list)
        return tuple(PageAction(**{str(key): str(text) for key, text in dict(one).items()}) for one in value)  # type: ignore[arg-type]
    except (AssertionError, TypeError, ValueError) as problem:
        raise TaskError(
            f"`moves` cannot be read: {problem}", fix="give a list of objects with tool, name, value"
        ) from problem


def _actions(answer: str) -> list[Action]:
    if not answer:
        return []
    try:
        return [Action(str(tool), dict(arguments)) for tool, arguments in json.loads(answer)]
    except (TypeError, ValueError) as problem:
        raise TaskError(f"an answer is a JSON list of [tool, arguments]: {problem}") from problem
