"""Bad requests: each a clear message in OpenAI's shape, and nothing sampled."""

from __future__ import annotations

import json

import aiohttp
import pytest
from openai import AsyncOpenAI, AuthenticationError, BadRequestError, NotFoundError
from serve_doubles import Serving, serving

from openclaw_rl.errors import EngineError, RequestError
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.serve.settings import ServeSettings
from openclaw_rl.store.db import Store

USER = {"role": "user", "content": "hello"}
KEY = {"Authorization": "Bearer secret"}


async def _post(server: Serving, body: object, path: str = "/v1/chat/completions") -> tuple[int, dict[str, object]]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with aiohttp.ClientSession() as session, session.post(server.url + path, data=data, headers=KEY) as answer:
        held = await answer.json()
        assert set(held["error"]) - {"fix"} == {"message", "type", "param", "code"}
        fix = held["error"].get("fix", "")
        assert held["error"]["message"].endswith(fix[:1].upper() + fix[1:])
        return answer.status, held["error"]


REFUSED = [
    (b"", 400, None, "not valid JSON"),
    (b'{"messages": [', 400, None, "not valid JSON"),
    (b"[1, 2]", 400, None, "not a JSON object"),
    (b"\xff\xfe", 400, None, "not valid JSON"),
    ({}, 400, "messages", "messages"),
    ({"messages": []}, 400, "messages", "empty"),
    ({"messages": "hello"}, 400, "messages", "array"),
    ({"messages": [USER], "max_tokens": "ten"}, 400, "max_tokens", "int"),
    ({"messages": [USER], "max_tokens": 0}, 400, "max_tokens", "at least one"),
    ({"messages": [USER], "temperature": -1}, 400, "temperature", "between 0"),
    ({"messages": [USER], "top_p": -0.1}, 400, "top_p", "between 0 and 1"),
    ({"messages": [USER], "n": 0}, 400, "n", "1 to"),
    ({"messages": [USER], "n": 1000}, 400, "n", "1 to"),
    ({"messages": [USER], "stop": ""}, 400, "stop", "empty"),
    ({"messages": [USER], "logprobs": True, "top_logprobs": 50}, 400, "top_logprobs", "20"),
    ({"messages": [USER], "top_logprobs": 2}, 400, "top_logprobs", "logprobs"),
    ({"messages": [{"role": "narrator", "content": "x"}]}, 400, "messages[0].role", "narrator"),
    ({"messages": [{"role": "user"}]}, 400, "messages[0].content", "no content"),
    ({"messages": [{"content": "x"}]}, 400, "messages[0].role", "role"),
    ({"messages": [USER], "model": "gpt-9"}, 404, "model", "tiny"),
    ({"messages": [USER], "tool_choice": "required", "tools": []}, 400, "tool_choice", "no tools"),
    ({"messages": [USER], "tools": [{"type": "function"}]}, 400, "tools", "no function"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, 400, "messages[0].content[0]", "no text"),
    ({"messages": [USER], "response_format": {"type": "json_schema"}}, 400, "response_format", "format"),
    ({"messages": [USER], "logit_bias": {"x": 3}}, 400, "logit_bias", "not a token id"),
    ({"messages": [USER], "frequency_penalty": 3}, 400, "frequency_penalty", "between -2 and 2"),
    ({"messages": [USER], "modalities": ["text", "audio"]}, 400, "modalities", "text only"),
    ({"messages": [USER], "stream_options": {"include_usage": True}}, 400, "stream_options", "stream"),
    ({"messages": [USER], "chat_template_kwargs": {"messages": []}}, 400, "chat_template_kwargs", "messages"),
    ({"messages": [USER], "stop_token_ids": ["x"]}, 400, "stop_token_ids[0]", "int"),
    (
        {"messages": [{"role": "user", "content": "hello " * 2000}]},
        400,
        "messages",
        "maximum context length is 1024 tokens",
    ),
]


@pytest.mark.parametrize(("body", "status", "param", "says"), REFUSED, ids=lambda value: str(value)[:60])
async def test_a_bad_request_is_told_what_is_wrong(
    server: Serving, body: object, status: int, param: str | None, says: str
) -> None:
    found, problem = await _post(server, body)
    assert (found, problem["param"]) == (status, param)
    assert says in str(problem["message"])
    assert not server.engine.asked and not server.book.turns


async def test_a_prompt_beyond_the_context_has_the_code_clients_look_for(server: Serving, client: AsyncOpenAI) -> None:
    with pytest.raises(BadRequestError) as caught:
        await client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "hello " * 2000}])
    assert caught.value.code == "context_length_exceeded"


async def test_an_unknown_model_is_not_found(client: AsyncOpenAI) -> None:
    with pytest.raises(NotFoundError) as caught:
        await client.chat.completions.create(model="nope", messages=[{"role": "user", "content": "x"}])
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"x-api-key": "wrong"}])
async def test_a_wrong_key_is_refused_everywhere_but_where_none_is_needed(
    server: Serving, headers: dict[str, str]
) -> None:
    async with aiohttp.ClientSession(headers=headers) as session:
        for method, path, status in (
            ("POST", "/v1/chat/completions", 401),
            ("GET", "/v1/rl/status", 401),
            ("POST", "/v1/feedback", 401),
            ("GET", "/v1/models", 200),
            ("GET", "/healthz", 200),
            ("GET", "/metrics", 200),
        ):
            async with session.request(method, server.url + path) as answer:
                assert answer.status == status, path


async def test_the_official_client_knows_a_wrong_key(server: Serving) -> None:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="wrong", max_retries=0) as client:
        with pytest.raises(AuthenticationError):
            await client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "x"}])


async def test_a_key_in_the_other_header_is_taken_too(server: Serving) -> None:
    async with (
        aiohttp.ClientSession(headers={"x-api-key": "secret"}) as session,
        session.get(server.url + "/v1/rl/status") as answer,
    ):
        assert answer.status == 200


async def test_without_a_configured_key_everybody_is_let_in(renderer: ChatRenderer, store: Store) -> None:
    async with serving(renderer, store, keys={}) as server:
        server.says("hi")
        status, _ = 0, None
        async with (
            aiohttp.ClientSession() as session,
            session.post(server.url + "/v1/chat/completions", json={"messages": [USER]}) as answer,
        ):
            status = answer.status
        assert status == 200 and server.book.arrivals[0].key_name == "local"


async def test_a_body_that_is_too_large_is_413(renderer: ChatRenderer, store: Store) -> None:
    async with serving(renderer, store, settings=ServeSettings(max_body_bytes=2048)) as server:
        status, problem = await _post(server, {"messages": [{"role": "user", "content": "x" * 4096}]})
        assert status == 413 and "larger" in str(problem["message"])


async def test_an_unknown_path_and_a_wrong_method_are_answered_in_the_same_shape(server: Serving) -> None:
    status, _ = await _post(server, {}, "/v1/nothing")
    assert status == 404
    status, _ = await _post(server, {}, "/v1/models")
    assert status == 405


async def test_an_unknown_parameter_is_ignored_and_counted(server: Serving) -> None:
    server.says("hi")
    async with aiohttp.ClientSession(headers=KEY) as session:
        body = {"messages": [USER], "store": False, "sparkle": 3}
        async with session.post(server.url + "/v1/chat/completions", json=body) as answer:
            assert answer.status == 200
        async with session.get(server.url + "/metrics") as answer:
            text = await answer.text()
    assert 'openclaw_rl_ignored_parameters_total{name="sparkle"} 1.0' in text
    assert 'openclaw_rl_requests_total{route="/v1/chat/completions",status="200"} 1.0' in text


async def test_half_a_surrogate_pair_does_not_refuse_the_request(server: Serving) -> None:
    server.says("hi")
    body = b'{"messages": [{"role": "user", "content": "cut \\ud83d"}]}'
    async with (
        aiohttp.ClientSession(headers=KEY) as session,
        session.post(server.url + "/v1/chat/completions", data=body) as answer,
    ):
        assert answer.status == 200
    assert server.book.turns[0].messages[0].text == "cut ?"


@pytest.mark.parametrize("count", [1, 2])
async def test_a_full_queue_is_429_before_a_stream_begins(server: Serving, count: int) -> None:
    refusal = RequestError("the queue is full", status=429, code="queue_full")
    for _ in range(count - 1):
        server.says("hi", waits_at=0)
    server.says("hi", fails_at=0, problem=refusal)
    status, problem = await _post(server, {"messages": [USER], "stream": True, "n": count})
    assert (status, problem["code"]) == (429, "queue_full")
    assert not server.book.turns


async def test_an_engine_that_dies_on_the_way_ends_the_stream_with_an_error(server: Serving) -> None:
    server.says("hello there", waits_at=1, fails_at=2, problem=EngineError("the engine is gone"))
    server.engine.go.set()
    async with (
        aiohttp.ClientSession(headers=KEY) as session,
        session.post(server.url + "/v1/chat/completions", json={"messages": [USER], "stream": True}) as answer,
    ):
        text = await answer.text()
    last = text.strip().splitlines()[-1].removeprefix("data: ")
    assert json.loads(last)["error"]["code"] == "engine_unavailable"
    assert "[DONE]" not in text and not server.book.turns


async def test_what_nobody_foresaw_is_a_500_with_an_id_that_stands_in_the_log(
    server: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    server.says("hi", fails_at=0, problem=KeyError("oops"))
    status, problem = await _post(server, {"messages": [USER]})
    name = str(problem["message"]).split("error ")[1].split(":")[0]
    assert status == 500 and name in caplog.text and "oops" in caplog.text
    assert "oops" not in str(problem["message"])
