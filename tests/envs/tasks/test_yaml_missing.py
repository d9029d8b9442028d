"""Without PyYAML a task in Terminal-Bench's layout says what to install."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from openclaw_rl.envs.tasks.terminal_bench import read_terminal_bench
from openclaw_rl.errors import ConfigError, TaskError


def _task(folder: Path) -> Path:
    (folder / "tests").mkdir()
    (folder / "Dockerfile").write_text("FROM python:3.12\n", "utf-8")
    (folder / "task.yaml").write_text("instruction: Count the files.\n", "utf-8")
    return folder


def test_a_task_says_what_to_install_where_nothing_reads_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _task(tmp_path)
    assert read_terminal_bench(folder)[0].instruction == "Count the files."
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ConfigError, match="PyYAML is not installed") as caught:
        read_terminal_bench(folder)
    assert caught.value.fix == "install it: pip install 'openclaw-rl[envs]'"


def test_a_compose_file_that_is_no_yaml_is_said_to_be_unreadable(tmp_path: Path) -> None:
    folder = _task(tmp_path)
    (folder / "docker-compose.yaml").write_text("services: [", "utf-8")
    with pytest.raises(TaskError, match=r"docker-compose\.yaml cannot be read"):
        read_terminal_bench(folder)
