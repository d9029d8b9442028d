"""Tasks in Terminal-Bench 1's layout: task.yaml, Dockerfile, run-tests.sh, tests/, solution.sh."""

from __future__ import annotations

import re
from pathlib import Path

from openclaw_rl.core.message import Json
from openclaw_rl.envs.task import Resources, Task, TaskTimeouts
from openclaw_rl.envs.tasks.harbor import TaskFiles
from openclaw_rl.errors import ConfigError, TaskError

KEPT = ("difficulty", "category", "tags", "parser_name", "author_name")
# Scripts that fetch a test runner first are replaced: pytest is already here.
FETCHES = re.compile(r"\b(curl|wget|apt-get|apt|pip3?|uvx?)\b")
REWARD = "if [ $? -eq 0 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt"
PYTEST = "python3 -m pytest -q -p no:cacheprovider /tests"


def read_terminal_bench(folder: Path) -> tuple[Task, TaskFiles]:
    """A task in that layout. TaskError says what is wrong."""
    content = _read_yaml(folder / "task.yaml")
    instruction = content.get("instruction")
    if not isinstance(instruction, str) or not instruction.strip():
        raise TaskError("task.yaml has no instruction")
    if not (folder / "Dockerfile").is_file():
        raise TaskError("Dockerfile is missing")
    if not (folder / "tests").is_dir():
        raise TaskError("tests/ is missing")
    task = Task(
        folder.name,
        instruction.strip(),
        resources=Resources(memory_mb=2048, disk_mb=1024),
        limits=TaskTimeouts(
            600.0, _seconds(content, "max_agent_timeout_sec"), _seconds(content, "max_test_timeout_sec")
        ),
        metadata={name: content[name] for name in KEPT if name in content},
    )
    solves = (folder / "solution.sh").is_file()
    return task, TaskFiles(
        folder,
        folder / "tests",
        ("bash", "-c", f"export TEST_DIR=/tests; {_tests(folder)}; {REWARD}"),
        folder if solves else None,
        ("bash", "/solution/solution.sh"),
        unsupported=_unsupported(folder),
    )


def _tests(folder: Path) -> str:
    """The command that runs the tests: the task's own script, unless it fetches a runner."""
    script = folder / "run-tests.sh"
    text = script.read_text("utf-8", "replace") if script.is_file() else ""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    if not lines.strip() or FETCHES.search(lines):
        return PYTEST
    return f"(\n{text}\n)"


def _unsupported(folder: Path) -> str:
    composed = folder / "docker-compose.yaml"
    if not composed.is_file():
        return ""
    content = _read_yaml(composed)
    services = content.get("services")
    if isinstance(services, dict) and len(services) > 1:
        return f"it needs several containers: {', '.join(sorted(map(str, services)))}"
    return ""


def _seconds(content: dict[str, Json], name: str) -> float:
    value = content.get(name, 600.0)
    if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
        raise TaskError(f"{name} in task.yaml is {value!r}: a number of seconds is needed")
    return float(value)


def _read_yaml(path: Path) -> dict[str, Json]:
    """The content of the file; empty if it is not a table. Raises TaskError, or ConfigError if PyYAML is missing."""
    try:
        import yaml
    except ModuleNotFoundError as problem:
        raise ConfigError(
            "tasks in Terminal-Bench's layout are written in YAML, and PyYAML is not installed",
            fix="install it: pip install 'openclaw-rl[envs]'",
        ) from problem
    try:
        held = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        raise TaskError(f"{path.name} cannot be read: {' '.join(str(problem).split())}") from problem
    return held if isinstance(held, dict) else {}
