"""Code tasks in rows: files to repair, tests, and the repaired files."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.envs.box.sandbox import Boxes, ExecResult, Sandbox
from openclaw_rl.envs.task import Score, Task, TaskTimeouts
from openclaw_rl.envs.tasks.rows import Row, files_of, read_rows, text_of
from openclaw_rl.envs.tasks.source import Attempt, ReadTasks, box_of, in_a_box, spec_of
from openclaw_rl.errors import TaskError

JUDGE_S = 60.0
ENDS = re.compile(r"^python3? (\S+\.py)$")
# Code that exits early, as with sys.exit(0), must not pass: the last line of the tests reports that it was reached.
END = '\nopen("{name}", "w").close()\n'


@dataclass(frozen=True, slots=True)
class CodeTask:
    """The content of a row."""

    task: Task
    files: Mapping[str, str]
    gold: Mapping[str, str]
    tests: Mapping[str, str]
    commands: tuple[str, ...]


class CodeTasks(ReadTasks):
    """The tasks of one file."""

    def __init__(self, path: Path) -> None:
        self._rows, broken = read_rows(path, _read)
        super().__init__(path.parent.name, {name: row.task for name, row in self._rows.items()}, broken)

    async def start(self, task: Task, boxes: Boxes) -> Sandbox:
        """A box that contains the files."""
        box = await boxes.create(spec_of(task.resources))
        try:
            await _put(box, self._rows[task.id].files)
        except BaseException:
            await box.aclose()
            raise
        return box

    async def solve(self, task: Task, attempt: Attempt) -> Attempt:
        """Writes the repaired files."""
        await _put(box_of(task, attempt), self.gold(task))
        return attempt

    def gold(self, task: Task) -> Mapping[str, str]:
        """The repaired files."""
        return self._rows[task.id].gold

    async def judge(self, task: Task, attempt: Attempt) -> Score:
        """Puts the tests into a fork and runs each command; code that exits early or hangs is wrong.

        The task is solved if all of them pass. The component `passed` is the share that does.
        """
        row = self._rows[task.id]
        fork = await box_of(task, attempt).fork()
        try:
            results = [await _try(fork, row, command, task.limits.judge_s) for command in row.commands]
        finally:
            await fork.aclose()
        share = sum(passed for passed, _ in results) / len(results)
        said = "\n".join((done.stderr.text or done.stdout.text).strip()[-1000:] for _, done in results)
        seconds = sum(done.duration_s for _, done in results)
        return Score(float(share == 1.0), {"passed": share}, said.strip(), duration_s=seconds)


def _read(row: Row) -> tuple[str, CodeTask]:
    name = text_of(row, "id")
    metadata = {key: row[key] for key in ("source", "licence", "kind", "bug_type", "family") if key in row}
    task = Task(name, text_of(row, "instruction"), limits=TaskTimeouts(judge_s=JUDGE_S), metadata=metadata)
    files, gold, tests = (files_of(row, key) for key in ("files", "gold", "tests"))
    return name, CodeTask(task, files, gold, tests, _commands(row))


def _commands(row: Row) -> tuple[str, ...]:
    """`test_cmd`: one command, or several that are judged one by one."""
    given = row.get("test_cmd")
    if not isinstance(given, list):
        return (text_of(row, "test_cmd"),)
    commands = tuple(command for command in given if isinstance(command, str))
    if not commands or len(commands) < len(given):
        raise TaskError("`test_cmd` is neither a command nor a list of commands")
    return commands


async def _try(fork: Sandbox, row: CodeTask, command: str, timeout_s: float) -> tuple[bool, ExecResult]:
    """Whether a command passes. The tests are written again, so earlier commands cannot change them."""
    tests, end = dict(row.tests), ""
    if (match := ENDS.match(command)) and match[1] in tests:
        end = f".end-{secrets.token_hex(8)}"
        tests[match[1]] += END.format(name=end)
    await _put(fork, tests)
    done = in_a_box(await fork.exec(command, timeout_s=timeout_s, env={"PYTHONNOUSERSITE": "1"}))
    return done.is_ok and (not end or await _is_there(fork, end)), done


async def _put(box: Sandbox, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        await box.write(path, text.encode())


async def _is_there(box: Sandbox, path: str) -> bool:
    try:
        await box.read(path)
    except FileNotFoundError:
        return False
    return True
