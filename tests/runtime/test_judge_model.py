"""A judge with a model and a process of its own: asked, killed, started again."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from openclaw_rl.config import read_config
from openclaw_rl.core.message import Role, message
from openclaw_rl.engines.settings import EngineSettings
from openclaw_rl.errors import JudgeError, ModelError
from openclaw_rl.home.models import model_folder
from openclaw_rl.judge.settings import JudgeSettings
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.template import read_template
from openclaw_rl.runtime.installation import installed
from openclaw_rl.runtime.judge_model import JudgeModel

ASKED = (message(Role.USER, "Mia has 3 pens and gets 4 more. How many pens does she have?"),)
JUDGE = JudgeSettings(device="cpu", nice=3)


async def test_a_judge_that_died_is_started_again_when_it_is_asked_next() -> None:
    judge = await JudgeModel.start(model_folder("bundled"), JUDGE, EngineSettings(cache_tokens=4096))
    try:
        first = await judge.reply(ASKED, temperature=0.0, max_tokens=12)
        assert first and os.getpriority(os.PRIO_PROCESS, judge.pid) == os.getpriority(os.PRIO_PROCESS, 0) + 3
        died = judge.pid
        os.kill(died, signal.SIGKILL)
        with pytest.raises(JudgeError, match="the engine's process died"):
            await judge.reply(ASKED, temperature=0.0, max_tokens=4000)
        assert await judge.reply(ASKED, temperature=0.0, max_tokens=12) == first
        assert judge.pid not in (0, died)
    finally:
        await judge.aclose()
    assert judge.pid == 0


async def test_a_judge_that_cannot_be_started_again_is_a_judge_that_does_not_answer(tmp_path: Path) -> None:
    renderer = ChatRenderer(read_template(model_folder("bundled")))
    judge = JudgeModel(tmp_path, EngineSettings(model=str(tmp_path)), renderer)
    with pytest.raises(JudgeError, match=r"holds no config\.json"):
        await judge.reply(ASKED, temperature=0.0, max_tokens=12)


async def test_a_wrong_path_is_told_before_anything_is_started(tmp_path: Path) -> None:
    config = read_config(
        environment={"PRM_MODEL_PATH": str(tmp_path / "nowhere")}, overrides={"home": str(tmp_path / "home")}
    )
    with pytest.raises(ModelError, match=r"there is no model folder .*nowhere"):
        async with installed(config):
            raise AssertionError("it started")
    assert not (tmp_path / "home").exists()
