"""Finds tasks of all formats in a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from openclaw_rl.envs.screen.tasks import read_screen_rows
from openclaw_rl.envs.task import Task
from openclaw_rl.envs.tasks.code import CodeTasks
from openclaw_rl.envs.tasks.harbor import FolderTasks, TaskFiles, read_harbor
from openclaw_rl.envs.tasks.repos import RepoTasks
from openclaw_rl.envs.tasks.rows import PARQUET, columns_of
from openclaw_rl.envs.tasks.source import TaskSource
from openclaw_rl.envs.tasks.swe_rows import SweRows
from openclaw_rl.envs.tasks.terminal_bench import read_terminal_bench
from openclaw_rl.envs.tasks.words import ANSWERS, QUESTIONS, WordTasks
from openclaw_rl.errors import TaskError

READERS: tuple[tuple[str, Callable[[Path], tuple[Task, TaskFiles]]], ...] = (
    ("task.toml", read_harbor),
    ("task.yaml", read_terminal_bench),
)
# What Harbor's folders contain besides task.toml: a folder with one of these and no task.toml is a broken task.
MARKS = ("instruction.md", "environment", "run-tests.sh")
DEEPEST = 4


def find_sources(folder: Path) -> list[TaskSource]:
    """Every source in a folder and below. TaskError if there is no task at all."""
    if not folder.is_dir():
        raise TaskError(f"{folder} is not a folder", fix="give a folder with tasks; docs/environments.md says which")
    found = [*_sources(folder, 0)]
    if not found:
        raise TaskError(
            f"no tasks were found in {folder}",
            fix="give a folder whose folders hold task.toml or task.yaml, or JSON lines; see docs/environments.md",
        )
    return found


def _sources(folder: Path, depth: int) -> Iterator[TaskSource]:
    if _is_task(folder):
        yield _folder_tasks(folder.name, [folder])
        return
    inner = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    tasks = [path for path in inner if _is_task(path)]
    if tasks:
        yield _folder_tasks(folder.parent.name if folder.name == "tasks" else folder.name, tasks)
    else:
        for path in sorted([*folder.glob("*.jsonl"), *folder.glob("*" + PARQUET)]):
            source = _rows(path)
            if source is not None:
                yield source
        yield from _desktops(folder)
    if depth < DEEPEST:
        for path in inner:
            if path not in tasks:
                yield from _sources(path, depth + 1)


def _is_task(folder: Path) -> bool:
    return any((folder / name).is_file() for name, _ in READERS) or all((folder / name).exists() for name in MARKS[:2])


def _folder_tasks(name: str, folders: list[Path]) -> FolderTasks:
    found: dict[str, tuple[Task, TaskFiles]] = {}
    broken: dict[str, str] = {}
    for folder in folders:
        read = next((read for mark, read in READERS if (folder / mark).is_file()), read_harbor)
        try:
            found[folder.name] = read(folder)
        except TaskError as problem:
            broken[folder.name] = problem.problem
    return FolderTasks(name, found, broken)


def _desktops(folder: Path) -> Iterator[TaskSource]:
    """OSWorld's files, one a task."""
    paths = sorted(folder.glob("*.json"))
    if paths:
        from openclaw_rl.envs.screen.desktop.osworld import is_osworld, read_osworld

        found = [path for path in paths if is_osworld(path)]
        if found:
            yield read_osworld(folder.name, found)


def _rows(path: Path) -> TaskSource | None:
    """The source for a file of rows, determined by the first row's keys; None for rows of another kind."""
    if path.suffix == PARQUET:
        return WordTasks(path)
    keys = columns_of(path)
    if {"archive", "bug_patch"} <= keys:
        return RepoTasks(path)
    if "page" in keys:
        return read_screen_rows(path)
    if {"files", "tests", "test_cmd"} <= keys:
        return CodeTasks(path)
    if {"instance_id", "FAIL_TO_PASS"} <= keys:
        return SweRows(path)
    if keys & set(QUESTIONS) and keys & {*ANSWERS, "reward_model"}:
        return WordTasks(path)
    return None
