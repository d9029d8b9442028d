"""What every judge does, and every model one is made of, the doubles included; later kinds pass as they are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from contract_kinds import CHATS, ChatKind

from openclaw_rl.core.message import Role, message
from openclaw_rl.core.next_state import NextState, NextStateSource
from openclaw_rl.core.protocols import Judge
from openclaw_rl.errors import JudgeError
from openclaw_rl.judge.llm import LlmJudge
from openclaw_rl.judge.settings import JudgeSettings
from openclaw_rl.testing.judge import ScriptedChat, ScriptedJudge
from openclaw_rl.testing.turns import a_turn

ASKED = (message(Role.SYSTEM, "Judge."), message(Role.USER, "Was it good?"))
TURN = a_turn("t", "Write about cake.")
SAID = "Please write it in plain sentences without any bold text."
NEXT = NextState("t", (message(Role.USER, SAID),), NextStateSource.USER)
HINT = "Write in plain sentences without any bold text."
Made = Callable[[int | None], Judge]  # a judge that finds this score; None for one that cannot be reached


def scripted(score: int | None) -> Judge:
    return ScriptedJudge(lambda turn, then: JudgeError("away") if score is None else (score, HINT))


def of_a_model(score: int | None) -> Judge:
    """Asks a model."""
    answer = f"[HINT_START]\n{HINT}\n[HINT_END]\n\\boxed{{1}}"

    def says(asked: object) -> str | JudgeError:
        if score is None:
            return JudgeError("away")
        return answer if "HINT_START" in str(asked) else f"\\boxed{{{score}}}"

    return LlmJudge(ScriptedChat(says), JudgeSettings(votes=3, retries=0))


JUDGES: dict[str, Made] = {"scripted": scripted, "of a model": of_a_model}


@pytest.fixture(params=JUDGES)
def judge(request: pytest.FixtureRequest) -> Made:
    return JUDGES[request.param]


@pytest_asyncio.fixture(params=CHATS)
async def kind(request: pytest.FixtureRequest) -> AsyncIterator[ChatKind]:
    async with CHATS[request.param]("That was good.") as made:
        yield made


async def test_a_model_answers_with_its_text_alone(kind: ChatKind) -> None:
    assert await kind.chat.reply(ASKED, temperature=0.0, max_tokens=50, seed=1) == "That was good."
    assert await kind.chat.reply(ASKED, temperature=0.0, max_tokens=50) == "That was good."


async def test_a_model_that_cannot_be_reached_is_a_judge_that_is_away(kind: ChatKind) -> None:
    with pytest.raises(JudgeError):
        await kind.away.reply(ASKED, temperature=0.0, max_tokens=50)


@pytest.mark.parametrize("score", [-1, 0, 1])
async def test_a_verdict_names_its_turn_its_score_and_the_votes_it_is_made_of(judge: Made, score: int) -> None:
    verdict = await judge(score).judge(TURN, NEXT)
    assert (verdict.turn, verdict.score, verdict.mean) == ("t", score, float(score))
    assert {vote.score for vote in verdict.votes if vote.asked == "score"} == {score}


async def test_a_hint_stands_in_the_verdict_once(judge: Made) -> None:
    verdict = await judge(-1).judge(TURN, NEXT)
    assert [hint.text for hint in verdict.hints] == [HINT]


async def test_where_no_judge_can_be_reached_the_turn_has_no_verdict(judge: Made) -> None:
    with pytest.raises(JudgeError, match="away"):
        await judge(None).judge(TURN, NEXT)
