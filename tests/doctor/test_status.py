"""The status: settled when nothing is under way, and each stage's last problem beside what is to be done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from openclaw_rl.doctor.learning import Finding, Level
from openclaw_rl.doctor.status import Facts, is_settled, status_of
from openclaw_rl.engines.local.settings import EngineInfo, EngineStats
from openclaw_rl.judge.stage import JudgeStatus
from openclaw_rl.publish.stage import PublishStatus
from openclaw_rl.runtime.activity import Activity
from openclaw_rl.serve.metrics import Metrics, Reuse
from openclaw_rl.store.tables.overview import Overview
from openclaw_rl.teach.stage import CarryStatus
from openclaw_rl.train.stage import TrainStatus

STILL = Facts(
    counts={"main": 12, "ready": 3},
    prompts={},
    judging=JudgeStatus(seconds_p50=2.1),
    training=TrainStatus(ready=3, needed=4, is_resting=True, why_waiting="1 sample more is needed"),
    publishing=PublishStatus(),
    carrying=CarryStatus(),
    has_hints_to_try=False,
    info=EngineInfo("toy", "Qwen3ForCausalLM", 1, 8, 8, (2,), "float32", "cpu", 8, ()),
    engine=EngineStats(0, 0, 0, 0, 0, 0, 0, 0.0, 0.0),
    learns=True,
    seen=Overview(paired=9, main=12, sessions=4, zeros=4),
)


def under_way() -> Iterator[Facts]:
    yield replace(STILL, counts={**STILL.counts, "paired": 1})
    yield replace(STILL, judging=replace(STILL.judging, in_flight=1))
    yield replace(STILL, publishing=PublishStatus(at_gate=1))
    yield replace(STILL, has_hints_to_try=True)
    yield replace(STILL, training=replace(STILL.training, is_training=True))
    yield replace(STILL, training=replace(STILL.training, why_waiting=""))
    # a verdict is in, and the stage that makes a sample of it has not looked since: what it waited for is old news
    yield replace(STILL, training=replace(STILL.training, is_resting=False))


def test_it_is_settled_where_nothing_is_under_way() -> None:
    assert is_settled(STILL)
    assert is_settled(replace(STILL, counts={**STILL.counts, "judged": 1}))  # waits for its session, and was looked at
    assert [is_settled(facts) for facts in under_way()] == [False] * 7
    assert all(is_settled(replace(facts, learns=False)) for facts in under_way())


def test_the_status_tells_the_story_the_warnings_and_each_stages_last_problem() -> None:
    full = Finding(Level.MEND, "home", "the disk is nearly full", "free space")
    away = replace(STILL.judging, last_error="refused")
    body = status_of(replace(STILL, reused=0.93, home=(full,), judging=away))
    assert body["story"] == (
        "12 main turns, 9 have a next state, 4 judged 0, 3 ready; a step needs 4; the judge does not answer (refused); "
        "0 were trained on, 0 were dropped; prompt tokens reused: 93%"
    )
    assert body["prompt_tokens_reused"] == 0.93
    warnings = body["warnings"]
    assert isinstance(warnings, list)
    assert warnings[0] == "the disk is nearly full: free space"
    assert str(warnings[1]).startswith("the judge does not answer, 0 turns wait: refused: ")
    problems = body["problems"]
    assert isinstance(problems, dict)
    assert (problems["judge"], problems["serve"], set(problems)) == (
        "refused",
        "",
        {"serve", "collect", "judge", "train", "publish"},
    )
    found = body["diagnosis"]
    assert isinstance(found, list)
    assert found[0] == {"level": "mend", "stage": "home", "said": "the disk is nearly full", "fix": "free space"}


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (400, '{"error": {"message": "messages is empty"}}', "POST /v1/x was answered 400: messages is empty"),
        (529, '{"type": "error", "error": {"type": "overloaded"}}', "POST /v1/x was answered 529: "),
        (503, "no JSON", "POST /v1/x was answered 503: "),
        (200, "{}", ""),
    ],
)
async def test_a_request_that_failed_is_remembered_in_the_words_its_client_got(
    status: int, body: str, said: str
) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, text=body)

    activity = Activity()
    app = web.Application(middlewares=[activity.middleware])
    app.router.add_post("/v1/x", answer)
    async with TestClient(TestServer(app)) as client:
        await client.post("/v1/x")
    assert activity.last_problem == said
    assert (activity.refused, activity.failed) == (int(400 <= status < 500), int(status >= 500))
    assert activity.is_idle


def test_the_reused_share_is_that_of_prompts_that_go_on() -> None:
    metrics = Metrics()
    assert b"openclaw_rl_prompt_tokens_reused_share NaN" in metrics.text()
    metrics.reuse.add(1000, 0)
    metrics.reuse.add(3000, 3000)
    assert metrics.reuse == Reuse(4000, 3000)
    assert b"openclaw_rl_prompt_tokens_reused_share 0.75" in metrics.text()
