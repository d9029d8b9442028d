"""What the doubles do beyond what they stand for: scripts, and notes of what was asked. The rest is in contracts."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from openclaw_rl.core.adapter import WEIGHTS, Adapter, StepReport
from openclaw_rl.core.completion import Finish, Scores, completion_of
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Chat, Engine, Judge
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.errors import EngineError, JudgeError, TrainerError
from openclaw_rl.testing.clock import Clock
from openclaw_rl.testing.engine import ScriptedEngine
from openclaw_rl.testing.judge import ScriptedChat, ScriptedJudge
from openclaw_rl.testing.trainer import ScriptedTrainer, scripted
from openclaw_rl.testing.turns import a_sample, a_turn

PROMPT = Prompt((7, 8, 9))
FIRST = PolicyVersion("shared", 1)


async def test_an_engine_says_its_replies_in_turn_and_then_that_the_script_is_over() -> None:
    engine: Engine = ScriptedEngine([[1, 2, 3], [4]])
    for expected in ((1, 2, 3), (4,)):
        sampled = [token async for token in engine.generate(PROMPT, Sampling(8), BASE)]
        assert completion_of(sampled, BASE, Finish.STOP).tokens == expected
        assert [token.finish for token in sampled] == [None] * (len(expected) - 1) + [Finish.STOP]
    with pytest.raises(EngineError, match="held 2 replies"):
        await anext(engine.generate(PROMPT, Sampling(8), BASE))


async def test_a_reply_that_is_given_up_midway_is_noted() -> None:
    engine = ScriptedEngine([[1, 2, 3]])
    async with aclosing(engine.generate(PROMPT, Sampling(8), BASE)) as tokens:
        await anext(tokens)
    assert [asked.prompt for asked in engine.closed] == [PROMPT]


async def test_scores_are_alike_or_what_a_function_says() -> None:
    scores = await ScriptedEngine([], logp=-2.0).score(PROMPT, start=1, version=BASE, top_k=2)
    assert (scores.start, scores.logp) == (1, (-2.0, -2.0))
    assert scores.top == (((8, -2.0), (9, -3.0)), ((9, -2.0), (10, -3.0)))
    told = ScriptedEngine([], scoring=lambda prompt, start, version, top_k: Scores(start, (-float(top_k),)))
    assert (await told.score(PROMPT, start=2, version=BASE, top_k=4)).logp == (-4.0,)
    assert told.calls == ["score shared.0"]


async def test_a_version_stays_as_long_as_somebody_runs_on_it(tmp_path: Path) -> None:
    engine = ScriptedEngine([[1, 2]], hold=(hold := asyncio.Event()))
    (tmp_path / WEIGHTS).write_bytes(b"weights")
    await engine.load(Adapter(tmp_path, "d", FIRST))
    tokens = engine.generate(PROMPT, Sampling(8), FIRST)
    await anext(tokens)
    await engine.unload(FIRST)
    assert engine.loaded == []
    assert FIRST in engine.versions
    hold.set()
    assert [token.token async for token in tokens] == [2]
    assert FIRST not in engine.versions


async def test_an_engine_that_is_away_answers_nothing() -> None:
    engine = ScriptedEngine([[1]])
    engine.is_away = True
    with pytest.raises(EngineError, match="gone"):
        await anext(engine.generate(PROMPT, Sampling(8), BASE))
    with pytest.raises(EngineError, match="gone"):
        await engine.score(PROMPT, start=1, version=BASE)
    with pytest.raises(EngineError, match="gone"):
        await engine.load(Adapter(Path("a"), "d", FIRST))


async def test_a_reply_may_end_by_its_length_where_the_script_is_over() -> None:
    engine = ScriptedEngine([[1, 2]], ends=Finish.LENGTH)
    assert [token.finish async for token in engine.generate(PROMPT, Sampling(8), BASE)] == [None, Finish.LENGTH]


async def test_a_judge_gives_scores_hints_and_its_absence() -> None:
    away = JudgeError("away")
    judge: Judge = (scripted := ScriptedJudge([1, (-1, "Be brief."), None, away]))
    said = NextState("t", (message(Role.USER, "no"),), NextStateSource.USER)
    verdicts = [await judge.judge(a_turn("t"), said) for _ in range(3)]
    assert [verdict.score for verdict in verdicts] == [1, -1, None]
    assert [hint.text for hint in verdicts[1].hints] == ["Be brief."]
    for problem in ("away", "held 4 opinions"):
        with pytest.raises(JudgeError, match=problem):
            await judge.judge(a_turn("t"), said)
    assert len(scripted.judged) == 5


async def test_a_chat_replies_in_turn() -> None:
    chat: Chat = ScriptedChat(["hello"])
    asked = (message(Role.USER, "hi"),)
    assert await chat.reply(asked, temperature=0.0, max_tokens=5) == "hello"
    with pytest.raises(JudgeError, match="held 1 replies"):
        await chat.reply(asked, temperature=0.0, max_tokens=5)


async def test_a_trainer_reports_what_the_script_says_and_notes_what_it_was_asked(tmp_path: Path) -> None:
    refused = StepReport(took_step=False, metrics={}, why="not finite")
    trainer = ScriptedTrainer(scripted([refused, TrainerError("out of memory")]))
    assert await trainer.step([a_sample(a_turn("a"))], resume=None, gentleness=2) == refused
    with pytest.raises(TrainerError, match="out of memory"):
        await trainer.step([a_sample(a_turn("b"))], resume=None)
    with pytest.raises(TrainerError, match="no step"):
        await trainer.export(tmp_path / "1", FIRST)
    assert (await trainer.step([a_sample(a_turn("c"))], resume=None)).took_step
    assert trainer.batches == [["a"], ["b"], ["c"]]
    assert (trainer.gentleness, trainer.resumed) == ([2, 0, 0], [None, None, None])


def test_a_clock_stands_still_until_it_is_moved() -> None:
    clock = Clock(5.0)
    assert clock() == clock() == 5.0
    assert clock.advance(1.5) == clock() == 6.5
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1.0)
