"""The status: settled when nothing is under way, and each stage's last problem beside what is to be done."""

from __future__ import annotations

from dataclasses import replace

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from openclaw_rl.core.facts import Overview, StoreFacts
from openclaw_rl.core.finding import Finding, Level
from openclaw_rl.core.stage import StageReport
from openclaw_rl.doctor.learning import Loop, status_of
from openclaw_rl.judge.status import JudgeStatus, judge_findings
from openclaw_rl.runtime.activity import Activity
from openclaw_rl.serve.metrics import Metrics, Reuse
from openclaw_rl.train.status import TrainStatus

FACTS = StoreFacts({"main": 12, "ready": 3}, Overview(paired=9, main=12, sessions=4, zeros=4))
LOOP = Loop(
    JudgeStatus(seconds_p50=2.1),
    train=TrainStatus(ready=3, needed=4, is_resting=True, why_waiting="1 sample more is needed"),
    is_live=True,
)
SETTLED = (StageReport("judge", LOOP.judge, True), StageReport("train", LOOP.train, True))


def shown(facts: StoreFacts = FACTS, loop: Loop = LOOP, reports: tuple[StageReport, ...] = SETTLED, **more: object):  # type: ignore[no-untyped-def]
    return status_of(facts, loop, reports, about={"prompt_tokens_reused": loop.reused}, **more)  # type: ignore[arg-type]


def test_it_is_settled_where_every_stage_is() -> None:
    assert shown()["is_settled"]
    busy = (SETTLED[0], replace(SETTLED[1], is_settled=False))
    assert not shown(reports=busy)["is_settled"]
    assert shown(loop=replace(LOOP, learns=False), reports=busy)["is_settled"]


def test_the_status_tells_the_story_the_warnings_and_each_stages_last_problem() -> None:
    full = Finding(Level.MEND, "home", "the disk is nearly full", "free space")
    away = replace(LOOP.judge, last_error="refused")
    found = tuple(judge_findings(FACTS, away, is_live=True))
    reports = (StageReport("judge", away, True, "refused", found), SETTLED[1])
    body = shown(loop=replace(LOOP, judge=away, reused=0.93), reports=reports, home=(full,))
    assert body["story"] == (
        "12 main turns, 9 have a next state, 4 judged 0, 3 ready; a step needs 4; the judge does not answer (refused); "
        "0 were trained on, 0 were dropped; prompt tokens reused: 93%"
    )
    assert body["prompt_tokens_reused"] == 0.93
    warnings = body["warnings"]
    assert isinstance(warnings, list)
    assert warnings[0] == "the disk is nearly full: free space"
    assert str(warnings[1]).startswith("the judge does not answer, 0 turns wait: refused: ")
    assert body["problems"] == {"serve": "", "collect": "", "judge": "refused", "train": ""}
    assert body["train"]["needed"] == 4
    assert body["diagnosis"][0] == {"level": "mend", "stage": "home", "said": full.said, "fix": full.fix}


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
