"""A judge behind HTTP: a real server on a free port, and everything it may answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from openclaw_rl.core.message import Json, Role, message
from openclaw_rl.errors import JudgeError
from openclaw_rl.judge.partners import EndpointChat
from openclaw_rl.testing.listening import listening

ASK = [message(Role.USER, "How was it?")]
GOOD: dict[str, Json] = {"choices": [{"message": {"role": "assistant", "content": "\\boxed{1}"}}]}
Answer = tuple[int, Json, dict[str, str]]


@dataclass
class Endpoint:
    """Gives its answers in order and keeps what it was asked."""

    answers: list[Answer]
    bodies: list[dict[str, Json]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    url: str = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.json())
        self.keys.append(request.headers.get("Authorization"))
        status, body, headers = self.answers.pop(0)
        if isinstance(body, str):
            return web.Response(status=status, text=body, headers=headers)
        return web.json_response(body, status=status, headers=headers)


@asynccontextmanager
async def serving(*answers: Answer) -> AsyncIterator[Endpoint]:
    endpoint = Endpoint(list(answers))
    app = web.Application()
    app.router.add_post("/v1/chat/completions", endpoint.handle)
    async with listening(app) as url:
        endpoint.url = f"{url}/v1"
        yield endpoint


@dataclass
class Pauses:
    """Notes how long it was asked to wait, and does not."""

    seconds: list[float] = field(default_factory=list)
    now_s: float = 100.0

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        self.now_s += seconds


async def ask(endpoint: Endpoint, pauses: Pauses, *, retries: int = 2) -> str:
    chat = EndpointChat(endpoint.url, "judge-1", "secret", retries=retries, pause=pauses, clock=lambda: pauses.now_s)
    async with chat:
        return await chat.reply(ASK, temperature=0.6, max_tokens=99, seed=7)


async def test_an_answer_is_the_first_choices_text() -> None:
    async with serving((200, GOOD, {})) as endpoint:
        assert await ask(endpoint, Pauses()) == "\\boxed{1}"
    assert endpoint.bodies == [
        {
            "model": "judge-1",
            "messages": [{"role": "user", "content": "How was it?"}],
            "temperature": 0.6,
            "max_tokens": 99,
            "seed": 7,
        }
    ]
    assert endpoint.keys == ["Bearer secret"]


async def test_it_waits_as_long_as_the_endpoint_asks_and_no_longer_than_a_minute() -> None:
    pauses = Pauses()
    async with serving((429, "slow", {"Retry-After": "7"}), (503, "", {"Retry-After": "9999"}), (200, GOOD, {})) as at:
        assert await ask(at, pauses) == "\\boxed{1}"
    assert pauses.seconds == [7.0, 60.0]


async def test_the_next_call_waits_too_where_one_was_told_to_come_back_later() -> None:
    pauses = Pauses()
    async with serving((429, "slow", {"Retry-After": "7"}), (200, GOOD, {}), (200, GOOD, {})) as endpoint:
        chat = EndpointChat(endpoint.url, "judge-1", retries=0, pause=pauses, clock=lambda: pauses.now_s)
        async with chat:
            with pytest.raises(JudgeError, match="429"):
                await chat.reply(ASK, temperature=0.6, max_tokens=9)
            assert pauses.seconds == []
            pauses.now_s += 2.0
            for _ in range(2):
                assert await chat.reply(ASK, temperature=0.6, max_tokens=9) == "\\boxed{1}"
    assert pauses.seconds == [5.0]


async def test_without_a_word_on_when_the_pause_doubles_and_then_it_gives_up() -> None:
    pauses = Pauses()
    async with serving((500, "one", {}), (502, "two", {}), (500, "three", {})) as endpoint:
        with pytest.raises(JudgeError, match="status 500: three"):
            await ask(endpoint, pauses)
    assert pauses.seconds == [1.0, 2.0]
    assert endpoint.answers == []


async def test_a_refusal_is_told_at_once() -> None:
    pauses = Pauses()
    async with serving((401, {"error": {"message": "bad key"}}, {})) as endpoint:
        with pytest.raises(JudgeError, match=r"401.*bad key") as caught:
            await ask(endpoint, pauses)
    assert pauses.seconds == []
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(EndpointChat("u", "m", "secret"))


@pytest.mark.parametrize("body", ["<html>", '{"choices": []}', "[]", "null", '{"choices": [{"message": null}]}'])
async def test_an_answer_of_another_kind_is_an_error_that_says_so(body: str) -> None:
    async with serving((200, body, {})) as endpoint:
        with pytest.raises(JudgeError, match="did not answer with a chat completion"):
            await ask(endpoint, Pauses())


async def test_an_answer_without_text_is_an_empty_one() -> None:
    async with serving((200, {"choices": [{"message": {"content": None}}]}, {})) as endpoint:
        assert await ask(endpoint, Pauses()) == ""


async def test_a_judge_that_is_not_there_is_an_error_after_the_retries() -> None:
    async with serving() as endpoint:
        gone = Endpoint([], url=endpoint.url)
    pauses = Pauses()
    with pytest.raises(JudgeError, match="does not answer"):
        await ask(gone, pauses, retries=1)
    assert len(pauses.seconds) == 1
