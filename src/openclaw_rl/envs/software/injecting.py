"""Tasks made from any library: one bug per function, kept if a few tests notice it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import shutil
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from openclaw_rl.core.message import Json
from openclaw_rl.envs.box.sandbox import Boxes
from openclaw_rl.envs.software.bugs import Bug, bugs_in, patch_of
from openclaw_rl.envs.software.library import Library
from openclaw_rl.envs.software.trying import BugOutcome, SuiteBaseline, baseline_of, try_bug
from openclaw_rl.envs.tasks.suites import SuiteReport
from openclaw_rl.errors import ConfigError

JOURNAL = ".make-swe.jsonl"
SHOWN_FAILURES = 4


class Naming(StrEnum):
    """How much an instruction reveals about the place of the bug."""

    FUNCTION = "function"
    FILE = "file"
    NOTHING = "nothing"  # the failing tests, and no more


@dataclass(frozen=True, slots=True)
class BugChoice:
    """Which bugs are tried. The same choice for the same library gives the same tasks."""

    seed: int = 0
    most: int = 50  # tasks
    tries: int = 3  # at most this many bugs per function, until one is kept
    suite_s: float = 60.0  # the longest time a suite may take
    naming: Naming = Naming.FUNCTION

    def __post_init__(self) -> None:
        if self.most < 1 or self.tries < 1 or self.suite_s <= 0:
            raise ConfigError(
                f"nothing can be made with {self.most} tasks, {self.tries} tries and {self.suite_s:g} s for a suite",
                fix="give at least one task, one try and more than 0 s",
            )


@dataclass(slots=True)
class Injected:
    """The tasks that were made, and the outcomes of all bugs."""

    folder: Path
    rows: list[dict[str, Json]] = field(default_factory=list)
    functions: int = 0  # that a bug can be put into
    tried_functions: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)  # of bugs
    left_out: tuple[str, ...] = ()  # tests that fail without a bug
    suite_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Place:
    """A function and the bugs that are tried in it, in this order."""

    path: str
    text: str
    bugs: tuple[Bug, ...]


async def inject(
    library: Library,
    boxes: Boxes,
    folder: Path,
    choice: BugChoice,
    *,
    at_once: int = 2,
    tell: Callable[[Injected], None],
) -> Injected:
    """Writes `tasks.jsonl` and the archive to `folder`; continues where it was stopped. `tell` gets each function.

    TaskError if the suite fails without a bug, ConfigError if the folder belongs to another choice.
    """
    places = _places(library, choice)
    journal = _Journal(folder / JOURNAL, _header(library, choice))
    made = Injected(folder, functions=len(places))
    base = await baseline_of(library, boxes, most_s=choice.suite_s)
    made.left_out, made.suite_s = base.left_out, base.seconds
    (folder / "repos").mkdir(parents=True, exist_ok=True)
    shutil.copy2(library.archive, folder / "repos" / library.archive.name)

    async def one(place: _Place) -> dict[str, Json]:
        known = journal.of(_key(place))
        return known if known is not None else await _tried(place, library, base, boxes, choice)

    waiting = deque(places)
    running: deque[tuple[_Place, asyncio.Task[dict[str, Json]]]] = deque()
    async with asyncio.TaskGroup() as group:
        while (waiting or running) and len(made.rows) < choice.most:
            while waiting and len(running) < at_once:
                place = waiting.popleft()
                running.append((place, group.create_task(one(place))))
            place, task = running.popleft()
            _take(made, await task)  # in the order of the choice, however long each takes
            journal.add(_key(place), task.result())
            _write(folder / "tasks.jsonl", made.rows)
            tell(made)
        for _, task in running:
            task.cancel()
    return made


def _places(library: Library, choice: BugChoice) -> list[_Place]:
    chance = random.Random(choice.seed)
    found: list[_Place] = []
    for path in library.modules():
        text = (library.tree / path).read_text("utf-8", "replace")
        functions: dict[str, list[Bug]] = {}
        for bug in bugs_in(text):
            functions.setdefault(bug.function, []).append(bug)
        for bugs in functions.values():
            chance.shuffle(bugs)
            found.append(_Place(path, text, tuple(bugs[: choice.tries])))
    chance.shuffle(found)
    return found


async def _tried(
    place: _Place, library: Library, base: SuiteBaseline, boxes: Boxes, choice: BugChoice
) -> dict[str, Json]:
    """The outcomes of a function's bugs up to the first that is kept, and its row."""
    outcomes: list[Json] = []
    for bug in place.bugs:
        outcome, report = await try_bug(base, boxes, place.path, place.text, bug)
        outcomes.append(outcome.value)
        if outcome is BugOutcome.KEPT:
            return {
                "outcomes": outcomes,
                "row": _row(place, bug, report, library=library, base=base, naming=choice.naming),
            }
    return {"outcomes": outcomes, "row": None}


def _take(made: Injected, result: Mapping[str, Json]) -> None:
    outcomes, row = result["outcomes"], result["row"]
    assert isinstance(outcomes, list)
    made.outcomes.update(str(outcome) for outcome in outcomes)
    made.tried_functions += 1
    if isinstance(row, dict):
        made.rows.append(row)


def _row(
    place: _Place, bug: Bug, report: SuiteReport, *, library: Library, base: SuiteBaseline, naming: Naming
) -> dict[str, Json]:
    """A task as RepoTasks reads it."""
    failed: list[Json] = [*sorted(report.failed)]
    return {
        "id": f"{library.name}/{place.path.replace('/', '.')}-{bug.function}-{bug.kind}-{bug.line}",
        "repo": library.name,
        "archive": f"repos/{library.archive.name}",
        "licence": library.licence,
        "kind": "bugfix",
        "instruction": instruction_of(place.path, bug.function, report.failed, naming),
        "bug_patch": patch_of(place.path, place.text, bug.put_into(place.text)),
        "file": place.path,
        "function": bug.function,
        "operator": bug.kind.value,
        "fail_to_pass": failed,
        "n_failed": len(report.failed),
        "n_passed": base.passed,
        "test_path": library.tests,
        "test_cmd": base.test_cmd,
        "suite_seconds": round(base.seconds, 2),
    }


def instruction_of(path: str, function: str, failed: Mapping[str, str], naming: Naming) -> str:
    """The instruction, made from the failures' first lines."""
    where = {Naming.FUNCTION: f" `{function}` in `{path}`", Naming.FILE: f" `{path}`", Naming.NOTHING: " the library"}
    lines = [f"- {name.partition('::')[2] or name}: {how[:200]}" for name, how in sorted(failed.items())]
    more = [f"- and {len(lines) - SHOWN_FAILURES} more"] if len(lines) > SHOWN_FAILURES else []
    return "\n".join(
        [
            f"A recent change broke{where[naming]}.",
            "",
            "Tests that fail now:",
            *lines[:SHOWN_FAILURES],
            *more,
            "",
            "Find the cause in the library's code and fix it. Do not change the tests.",
        ]
    )


def _key(place: _Place) -> str:
    return f"{place.path}::{place.bugs[0].function}"


def _header(library: Library, choice: BugChoice) -> dict[str, Json]:
    """The settings that must stay the same to continue a run. The number of tasks may change."""
    digest = hashlib.sha256(library.archive.read_bytes()).hexdigest()
    choices: dict[str, Json] = {"seed": choice.seed, "tries": choice.tries, "naming": choice.naming.value}
    return {"archive": digest, "tests": library.tests, **choices}


def _write(path: Path, rows: list[dict[str, Json]]) -> None:
    """Writes the rows atomically: a reader sees all of them or the earlier ones."""
    new = path.with_name(f".{path.name}.new")
    new.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    os.replace(new, path)


class _Journal:
    """A record of what was tried, a line per function; a line that was cut off is tried again."""

    def __init__(self, path: Path, header: Mapping[str, Json]) -> None:
        self._path = path
        lines = [*_lines(path)]
        if lines and lines[0] != header:
            raise ConfigError(
                f"{path.parent} contains tasks that were made with other settings",
                fix="name another folder with --out, or remove it",
            )
        self._known = {str(line["function"]): line for line in lines[1:]}
        self._header = None if lines else header  # written with the first function

    def of(self, function: str) -> dict[str, Json] | None:
        """The record of a function."""
        return self._known.get(function)

    def add(self, function: str, result: Mapping[str, Json]) -> None:
        """Records the result for a function."""
        if function in self._known:
            return
        self._known[function] = {"function": function, **result}
        lines = [self._known[function]] if self._header is None else [self._header, self._known[function]]
        self._header = None
        with self._path.open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines))


def _lines(path: Path) -> list[dict[str, Json]]:
    """The complete lines; the file is truncated after the last one."""
    if not path.is_file():
        return []
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        path.write_bytes(whole)
    return [json.loads(line) for line in whole.splitlines()]
