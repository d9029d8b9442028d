"""The doubles keep the rules of what they stand for."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from openclaw_rl.core.adapter import Adapter, StepReport, digest_of_folder
from openclaw_rl.core.completion import Finish, completion_of
from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.protocols import Chat, Engine, Judge, Trainer
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.errors import EngineError, JudgeError, TrainerError
from openclaw_rl.testing.clock import Clock
from openclaw_rl.testing.engine import ScriptedEngine
from openclaw_rl.testing.judge import ScriptedChat, ScriptedJudge
from openclaw_rl.testing.trainer import ScriptedTrainer
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


async def test_an_engine_stops_at_its_bounds() -> None:
    engine = ScriptedEngine(lambda prompt, sampling, version: [5, 6, 7])
    cut = [token async for token in engine.generate(PROMPT, Sampling(2), BASE)]
    assert [(token.token, token.finish) for token in cut] == [(5, None), (6, Finish.LENGTH)]
    stopped = [token async for token in engine.generate(PROMPT, Sampling(9, stop_ids=(6,)), BASE)]
    assert [(token.token, token.finish) for token in stopped] == [(5, None), (6, Finish.STOP)]


async def test_an_engine_keeps_a_version_until_nothing_runs_on_it() -> None:
    engine = ScriptedEngine([[1, 2]], hold=(hold := asyncio.Event()))
    with pytest.raises(EngineError, match=r"shared\.1 is not loaded"):
        await anext(engine.generate(PROMPT, Sampling(8), FIRST))
    await engine.load(Adapter(Path("a"), "d", FIRST))
    tokens = engine.generate(PROMPT, Sampling(8), FIRST)
    assert (await anext(tokens)).version == FIRST
    await engine.unload(FIRST)
    assert FIRST in engine.versions
    with pytest.raises(EngineError):
        await engine.score(PROMPT, start=1, version=FIRST)
    hold.set()
    assert [token.token async for token in tokens] == [2]
    assert FIRST not in engine.versions


async def test_a_reply_that_is_given_up_midway_is_noted() -> None:
    engine = ScriptedEngine([[1, 2, 3]])
    async with aclosing(engine.generate(PROMPT, Sampling(8), BASE)) as tokens:
        await anext(tokens)
    assert [asked.prompt for asked in engine.closed] == [PROMPT]


async def test_scores_belong_to_the_prompts_own_ids() -> None:
    scores = await ScriptedEngine([], logp=-2.0).score(PROMPT, start=1, version=BASE, top_k=2)
    assert (scores.start, scores.logp) == (1, (-2.0, -2.0))
    assert scores.top == (((8, -2.0), (9, -3.0)), ((9, -2.0), (10, -3.0)))
    with pytest.raises(ValueError, match="start is 0"):
        await ScriptedEngine([]).score(PROMPT, start=0, version=BASE)


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


def test_a_trainer_takes_a_step_only_where_there_is_a_signal(tmp_path: Path) -> None:
    trainer: Trainer = ScriptedTrainer()
    assert not trainer.step([a_sample(a_turn("a"), score=0.0)]).took_step
    assert trainer.step([a_sample(a_turn("b"), score=-1.0)]).took_step
    adapter = trainer.export(tmp_path / "1", FIRST)
    assert (adapter.version, adapter.digest) == (FIRST, digest_of_folder(tmp_path / "1"))
    assert trainer.export(tmp_path / "2", PolicyVersion("shared", 2)).digest != adapter.digest


def test_a_trainer_reports_what_the_script_says() -> None:
    refused = StepReport(took_step=False, metrics={}, why="not finite")
    trainer = ScriptedTrainer([refused, TrainerError("out of memory")])
    assert trainer.step([a_sample(a_turn("a"))]) == refused
    with pytest.raises(TrainerError, match="out of memory"):
        trainer.step([a_sample(a_turn("a"))])
    assert len(trainer.steps) == 2


def test_a_clock_stands_still_until_it_is_moved() -> None:
    clock = Clock(5.0)
    assert clock() == clock() == 5.0
    assert clock.advance(1.5) == clock() == 6.5
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1.0)
