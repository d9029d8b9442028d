"""A conversation that does not fit is refused in each API's own words: clients look for them and shorten it then."""

from __future__ import annotations

import re

import aiohttp
import pytest
from anthropic import AsyncAnthropic
from anthropic import BadRequestError as AnthropicRefusal
from openai import APIError, AsyncOpenAI, BadRequestError
from serve_doubles import Serving

from openclaw_rl.core.message import Role, message

LONG = "hello there " * 900
KEY = {"Authorization": "Bearer secret"}
OPENAI = "This model's maximum context length is 1024 tokens. However, your messages resulted in {} tokens. "


def _tokens(server: Serving) -> int:
    return server.parts.renderer.count([message(Role.USER, LONG)], ())


async def test_anthropics_words_name_both_figures(server: Serving) -> None:
    async with AsyncAnthropic(base_url=server.url, api_key="secret", max_retries=0) as claude:
        for stream in (False, True):
            with pytest.raises(AnthropicRefusal) as caught:
                await claude.messages.create(
                    model="tiny", max_tokens=9, messages=[{"role": "user", "content": LONG}], stream=stream
                )
            told = f"prompt is too long: {_tokens(server)} tokens > 1023 maximum"
            assert caught.value.body == {"type": "error", "error": {"type": "invalid_request_error", "message": told}}


async def test_a_prompt_that_leaves_no_room_for_an_answer_is_still_said_to_be_above_the_maximum(
    server: Serving,
) -> None:
    words, count = "a", server.parts.renderer.count
    while count([message(Role.USER, words)], ()) < 1024:
        words += " a"
    assert count([message(Role.USER, words)], ()) == 1024
    body = {"max_tokens": 9, "messages": [{"role": "user", "content": words}]}
    async with aiohttp.ClientSession(headers=KEY) as http, http.post(f"{server.url}/v1/messages", json=body) as answer:
        told = (await answer.json())["error"]["message"]
    assert told == "prompt is too long: 1024 tokens > 1023 maximum"


async def test_openais_chat_has_its_code_and_words(server: Serving, client: AsyncOpenAI) -> None:
    for stream in (False, True):
        with pytest.raises(BadRequestError) as caught:
            await client.chat.completions.create(
                model="tiny", messages=[{"role": "user", "content": LONG}], stream=stream
            )
        assert caught.value.code == "context_length_exceeded" and caught.value.type == "invalid_request_error"
        assert caught.value.body is not None
        told = OPENAI.format(_tokens(server)) + "Please reduce the length of the messages."
        assert caught.value.body["message"] == told  # type: ignore[index]


async def test_bare_text_has_the_same_words(server: Serving, client: AsyncOpenAI) -> None:
    tokens = len(server.parts.renderer.encode(LONG))
    for prompt in (LONG, [5] * tokens):
        with pytest.raises(BadRequestError) as caught:
            await client.completions.create(model="tiny", prompt=prompt)
        assert caught.value.code == "context_length_exceeded" and f"resulted in {tokens} tokens" in str(caught.value)


async def test_responses_are_refused_with_the_code_and_both_wordings(server: Serving, client: AsyncOpenAI) -> None:
    with pytest.raises(BadRequestError) as caught:
        await client.responses.create(model="tiny", input=LONG)
    assert caught.value.code == "context_length_exceeded"
    assert OPENAI.format(_tokens(server)) in str(caught.value)
    assert "exceeds the context window of this model" in str(caught.value)


async def test_a_responses_stream_fails_with_the_code_that_codex_looks_for(
    server: Serving, client: AsyncOpenAI
) -> None:
    body = {"input": LONG, "stream": True}
    async with aiohttp.ClientSession(headers=KEY) as http, http.post(f"{server.url}/v1/responses", json=body) as answer:
        assert answer.status == 200 and answer.content_type == "text/event-stream"
        text = await answer.text()
    assert re.findall(r"^event: (.*)$", text, re.M) == ["response.created", "error", "response.failed"]
    assert '"status":"failed"' in text and '"error":{"code":"context_length_exceeded","message":"This model' in text
    with pytest.raises(APIError, match="exceeds the context window") as caught:
        async for _ in await client.responses.create(model="tiny", input=LONG, stream=True):
            pass
    assert caught.value.code == "context_length_exceeded"
    assert not server.book.turns
