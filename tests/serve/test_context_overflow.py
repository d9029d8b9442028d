"""A conversation that does not fit is refused in each API's own words: clients look for them and shorten it then."""

from __future__ import annotations

import re
from dataclasses import replace

import aiohttp
import pytest
from anthropic import AsyncAnthropic
from anthropic import BadRequestError as AnthropicRefusal
from openai import APIError, AsyncOpenAI, BadRequestError
from serve_doubles import Serving, serving

from openclaw_rl.collect.stage import Collect, CollectSettings
from openclaw_rl.core.ledger import State
from openclaw_rl.core.message import Role, message
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.serve.parts import ServeParts
from openclaw_rl.store.db import Store

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


async def test_what_a_refused_request_says_counts_once_it_is_asked_again_in_short(
    renderer: ChatRenderer, store: Store
) -> None:
    def collecting(parts: ServeParts) -> ServeParts:
        return replace(parts, collector=Collect(store, CollectSettings(), lambda: 1000.0))

    async with serving(renderer, store, change=collecting) as server, aiohttp.ClientSession(headers=KEY) as http:

        async def ask(*messages: tuple[str, str], done: bool = False) -> tuple[int, str]:
            body = {"messages": [{"role": role, "content": text} for role, text in messages], "session_done": done}
            async with http.post(f"{server.url}/v1/chat/completions", json=body) as answer:
                await answer.read()
                return answer.status, answer.headers.get("x-openclaw-rl-turn", "")

        server.says("Three.")
        _, turn = await ask(("user", "apples?"))
        said = (("user", "apples?"), ("assistant", "Three."))
        assert (await ask(*said, ("user", f"no, four. {LONG}"), done=True))[0] == 400
        row = await store.row(turn)
        assert row is not None and (row.state, row.next_state) == (State.SERVED, None)
        server.says("Four.")
        assert (await ask(*said, ("user", "no, four.")))[0] == 200
        row = await store.row(turn)
        assert row is not None and row.next_state is not None
        assert [item.text for item in row.next_state.messages] == ["no, four."]
        assert [each.id for each in await store.open_sessions(seen_before_s=2000.0)] == [row.turn.session]
