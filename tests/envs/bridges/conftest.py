"""A small question for whatever environment is bridged."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.envs.tasks.words import WordTasks

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They need other packages, and some a minute: all but what stands in `test_foreign.py` is for `test-bridges`."""
    for item in items:
        if item.path.is_relative_to(HERE) and item.path.name != "test_foreign.py":
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def words(tmp_path: Path) -> WordTasks:
    """What is 6 times 7, and what 6 plus 7?"""
    (tmp_path / "rows.jsonl").write_text(
        '{"id": "times", "question": "What is 6 times 7?", "answer": "42"}\n'
        '{"id": "plus", "question": "What is 6 plus 7?", "answer": "13"}\n'
    )
    return WordTasks(tmp_path / "rows.jsonl")
