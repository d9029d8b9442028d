"""Queries to an engine that is full, away, or refuses what it is asked."""

from collections.abc import Sequence

import pytest

from openclaw_rl.core.completion import Scores
from openclaw_rl.core.prompt import Prompt
from openclaw_rl.core.sampling import Sampling
from openclaw_rl.core.version import BASE, PolicyVersion
from openclaw_rl.errors import EngineAwayError, EngineError, RequestError
from openclaw_rl.teach import asking
from openclaw_rl.teach.asking import reply_logp, sampled_reply
from openclaw_rl.testing.engine import Reply, Says, ScriptedEngine

FULL = RequestError("the queue is full", fix="try again in a second", status=429)
AWAY = EngineAwayError("no server of the model answers")
ASKED = Prompt((5, 6))


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "PAUSE_S", 0.0)
    monkeypatch.setattr(asking, "LONGEST_PAUSE_S", 0.0)


def engine_with(problems: Sequence[Exception]) -> ScriptedEngine:
    """It meets each of these problems, at the start of a reply, in its middle and in scoring; then it answers."""
    left = list(problems)

    def replies(prompt: Prompt, sampling: Sampling, version: PolicyVersion) -> Reply:
        return Says((7, 8), fails_at=len(left) % 2, problem=left.pop(0)) if left else (7, 8, 2)

    def scores(prompt: Prompt, start: int, version: PolicyVersion, top_k: int) -> Scores:
        if engine.calls[-1].startswith("score") and left:
            raise left.pop(0)
        return Scores(start, (-0.5,) * (len(prompt) - start), ())

    engine = ScriptedEngine(replies, scoring=scores)
    return engine


@pytest.mark.parametrize("problems", [[FULL], [AWAY], [FULL, AWAY, FULL, FULL]])
async def test_a_query_waits_while_the_engine_is_full_or_away(problems: list[Exception]) -> None:
    said = await sampled_reply(engine_with(problems), ASKED, Sampling(8, stop_ids=(2,)), BASE)
    assert said.tokens == (7, 8, 2)  # none of a reply that broke off
    assert await reply_logp(engine_with(problems), ASKED, (7, 8), BASE) == (-0.5, -0.5)


@pytest.mark.parametrize(
    "problem", [RequestError("the prompt is too long"), EngineError("version shared.3 is not loaded")]
)
async def test_what_no_waiting_mends_is_an_error(problem: Exception) -> None:
    with pytest.raises(EngineError, match=str(problem)):
        await sampled_reply(engine_with([problem]), ASKED, Sampling(8), BASE)
    with pytest.raises(EngineError, match=str(problem)):
        await reply_logp(engine_with([problem]), ASKED, (7,), BASE)
