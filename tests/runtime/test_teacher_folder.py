"""A teacher that cannot teach is told before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.config import read_config
from openclaw_rl.core.message import Json
from openclaw_rl.errors import ConfigError, ModelError
from openclaw_rl.runtime.installation import installed


def settings(home: Path, teacher: Path) -> dict[str, Json]:
    return {
        "home": str(home),
        "trainer.method.teacher": "model",
        "trainer.method.teacher_model": str(teacher),
    }


async def test_a_teacher_that_is_not_there_or_speaks_of_other_tokens_is_refused_at_start(tmp_path: Path) -> None:
    home, teacher = tmp_path / "home", tmp_path / "teacher"
    with pytest.raises(ModelError, match=r"there is no model folder .*teacher"):
        await started(settings(home, teacher))
    teacher.mkdir()
    (teacher / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"has no tokenizer\.json"):
        await started(settings(home, teacher))
    (teacher / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0}}}')
    with pytest.raises(ConfigError, match="has another vocabulary"):
        await started(settings(home, teacher))
    assert not home.exists()


async def started(overrides: dict[str, Json]) -> None:
    async with installed(read_config(environment={}, overrides=overrides)):
        raise AssertionError("it started")
