"""Steps scored by the judge where the environment reported nothing: votes averaged, the last step too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from carry_doubles import label_renderer

from openclaw_rl.core.episode import Episode, EpisodeEnd, EpisodeStep
from openclaw_rl.core.message import Message, Role, TextPart, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.sample import Wants
from openclaw_rl.errors import JudgeError
from openclaw_rl.judge.llm import LlmJudge
from openclaw_rl.judge.settings import JudgeSettings
from openclaw_rl.store.db import Store
from openclaw_rl.teach.outcomes import OutcomeStage
from openclaw_rl.teach.rules import LearningRules
from openclaw_rl.teach.settings import EpisodeSettings
from openclaw_rl.testing.judge import ScriptedChat
from openclaw_rl.testing.turns import a_turn


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await Store.open(tmp_path)
    yield opened
    await opened.aclose()


def stage(store: Store, chat: ScriptedChat) -> OutcomeStage:
    judge = LlmJudge(chat, JudgeSettings(votes=3, retries=0))
    rules = LearningRules(Wants.HINT)
    return OutcomeStage(store, label_renderer(), EpisodeSettings(), rules, 1.0, judge, now=lambda: 1000.0)


async def a_group(store: Store) -> None:
    """Two episodes of two steps; the first step of `a` has a score of its own."""
    for name, outcome in (("a", 1.0), ("b", 0.0)):
        episode = f"key:{name}"
        await store.episodes.begin(
            Episode(episode, "alice", "pens", 1000.0, group="g", group_size=2, environment="terminal")
        )
        for index in range(2):
            made = a_turn(f"{name}{index}", f"{name} sees {index}", session=episode)
            turn = replace(made, step=EpisodeStep(episode, index, "terminal"))
            assert await store.add_turn(turn, chain=turn.id, prefix=turn.id)
            shown = (message(Role.USER, f"{name} gets {index}"),)
            await store.episodes.report_step(episode, index, score=0.25 if turn.id == "a0" else None, shown=shown)
        await store.episodes.end(episode, EpisodeEnd(outcome), at_s=1000.0)


def votes(messages: Sequence[Message]) -> str | JudgeError:
    return "\\boxed{1}" if "gets 1" in messages[1].text else "\\boxed{-1}"


async def test_each_step_without_a_score_gets_the_mean_of_the_votes(store: Store) -> None:
    await a_group(store)
    drawn = iter(["\\boxed{1}", "\\boxed{1}", "\\boxed{-1}"])
    chat = ScriptedChat(lambda asked: next(drawn) if "b gets 1" in asked[1].text else votes(asked))
    assert await stage(store, chat).once()
    ready = {sample.turn: sample.score for sample in await store.ready(limit=9)}
    assert ready == pytest.approx({"a0": 0.25, "a1": 1.0, "b0": -1.0, "b1": 1 / 3})  # the last steps too
    assert len(chat.asked) == 9  # none about what the environment scored
    assert all("works on a task in a terminal" in asked[0].text for asked in chat.asked)


async def test_while_the_judge_is_away_the_group_waits_and_says_why(store: Store) -> None:
    await a_group(store)
    is_away = True
    chat = ScriptedChat(lambda asked: JudgeError("nobody is there") if is_away else votes(asked))
    held = stage(store, chat)
    assert not await held.once()
    assert held.status.waiting == 1 and "nobody is there" in held.status.why_waiting[0]
    assert not await store.ready(limit=9)
    is_away = False
    assert await held.once()
    assert len(await store.ready(limit=9)) == 4


async def test_a_step_on_which_nobody_voted_keeps_no_score_and_holds_nobody_up(store: Store) -> None:
    await a_group(store)
    chat = ScriptedChat(lambda asked: "I cannot say." if "b gets 1" in asked[1].text else votes(asked))
    assert await stage(store, chat).once()
    ready = {sample.turn: sample.score for sample in await store.ready(limit=9)}
    assert ready["b1"] is None and ready["b0"] == -1.0


async def test_a_tools_own_status_outranks_the_votes() -> None:
    chat = ScriptedChat(lambda asked: "\\boxed{1}")
    failed = Message(Role.TOOL, (TextPart("no such file"),), tool_call_id="c", is_error=True)
    judge = LlmJudge(chat, JudgeSettings())
    followed = NextState("t", (failed,), NextStateSource.ENVIRONMENT)
    assert await judge.step_score(a_turn("t"), followed, "software") == -1.0 and not chat.asked


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ("terminal", "in a terminal"),
        ("tools", "with tools"),
        ("software", "repairs software"),
        ("screen", "a screen"),
        ("chess", "with tools"),
    ],
)
async def test_each_kind_of_environment_has_words_of_its_own(environment: str, said: str) -> None:
    chat = ScriptedChat(lambda asked: "\\boxed{0}")
    followed = NextState("t", (message(Role.USER, "well"),), NextStateSource.ENVIRONMENT)
    assert await LlmJudge(chat, JudgeSettings()).step_score(a_turn("t"), followed, environment) == 0.0
    assert said in chat.asked[0][0].text.splitlines()[0]
