"""The served model as its own judge."""

from __future__ import annotations

import pytest

from openclaw_rl.core.message import Role, message
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE
from openclaw_rl.errors import EngineError, JudgeError, RequestError
from openclaw_rl.judge.partners import EngineChat
from openclaw_rl.testing.engine import Says, ScriptedEngine
from openclaw_rl.testing.renderer import END, LetterRenderer, ids_of, text_of


def talking(says: str) -> tuple[ScriptedEngine, LetterRenderer]:
    return ScriptedEngine([ids_of(says)]), LetterRenderer(lambda messages: "".join(item.text for item in messages))


async def test_the_base_model_is_asked_and_its_text_is_the_answer() -> None:
    engine, renderer = talking("\\boxed{1}$")
    chat = EngineChat(engine, renderer, stop_ids=(END,), options={"enable_thinking": False})
    asked = [message(Role.SYSTEM, "Judge."), message(Role.USER, "Hm?")]
    assert await chat.reply(asked, temperature=0.6, max_tokens=50, seed=3) == "\\boxed{1}"
    wanted = Sampling(max_tokens=50, temperature=0.6, seed=3, stop_ids=(END,))
    assert [(text_of(each.prompt.tokens), each.sampling, each.version) for each in engine.asked] == [
        ("Judge.Hm?", wanted, BASE)
    ]
    assert renderer.options == {"enable_thinking": False}


@pytest.mark.parametrize("problem", [EngineError("the engine is gone"), RequestError("the queue is full", status=429)])
async def test_an_engine_that_cannot_answer_is_a_judge_that_is_away(problem: Exception) -> None:
    engine = ScriptedEngine([Says(ids_of("half"), fails_at=2, problem=problem)])
    chat = EngineChat(engine, LetterRenderer(), stop_ids=())
    with pytest.raises(JudgeError, match="the local judge cannot answer"):
        await chat.reply([message(Role.USER, "a")], temperature=0, max_tokens=5)
