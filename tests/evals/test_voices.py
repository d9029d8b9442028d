"""A model that plays a user, behind an endpoint of its own."""

from __future__ import annotations

import json

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from openclaw_rl.errors import EngineError
from openclaw_rl.evals.people.exercises import ToyExercises
from openclaw_rl.evals.people.jobs import Assessment
from openclaw_rl.evals.people.voices import playing
from openclaw_rl.evals.personalization.plan import three

JOB = three(ToyExercises(), 0)[0].job(1)


def endpoint(said: str, asked: list[str]) -> TestServer:
    async def chat(request: web.Request) -> web.Response:
        body = await request.json()
        asked.append(body["messages"][-1]["content"])
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": said}}
        answer = {"id": "c", "object": "chat.completion", "created": 0, "model": body["model"], "choices": [choice]}
        return web.json_response(answer)

    async def models(request: web.Request) -> web.Response:
        return web.Response(text=json.dumps({"object": "list", "data": [{"id": "actor", "object": "model"}]}))

    app = web.Application()
    app.add_routes([web.post("/v1/chat/completions", chat), web.get("/v1/models", models)])
    return TestServer(app)


async def test_a_played_user_words_what_the_rule_found_and_is_never_asked_what_it_thinks() -> None:
    asked: list[str] = []
    async with endpoint(" I dislike that. ", asked) as server, playing(str(server.make_url("/v1"))) as voice:
        assert voice.model == "actor"
        said = await voice.correction(JOB, "**9**", Assessment(False, True, ()))
        thanked = await voice.thanks(JOB)
    assert (said, thanked) == ("I dislike that.", "I dislike that.")
    assert "**9**" in asked[0]
    assert "What is wrong:" in asked[0]
    assert "just right" in asked[1]


async def test_a_played_user_that_is_silent_or_away_is_named_as_the_reason() -> None:
    async with endpoint("", []) as server:
        url = str(server.make_url("/v1"))
        async with playing(url) as voice:
            with pytest.raises(EngineError, match="returned an empty reply"):
                await voice.thanks(JOB)
    with pytest.raises(EngineError, match="no model answers"):
        async with playing(url):
            raise AssertionError("nobody is there")
