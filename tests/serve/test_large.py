"""Large bodies are read as small ones are, only in pieces and beside the loop; what can never fit is refused."""

from __future__ import annotations

import asyncio
import io
import json
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

import aiohttp
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serve_doubles import Serving, serving

from openclaw_rl.core.message import Json
from openclaw_rl.errors import RequestError
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.serve.apis.chat.wire import ChatBody, MessageSpec, fields_of, parsed
from openclaw_rl.serve.request.large import LARGE_BYTES, beside, check_sizes, parsed_in_pieces, pieces
from openclaw_rl.store.db import Store

ODD = 'a "quoted" \\ [list], {object} \\" ü 🙂 \n'
values = st.recursive(
    st.none() | st.integers() | st.text(max_size=8) | st.sampled_from([ODD, '"', "\\", '\\"', "[", "},{"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def body_of(messages: Sequence[Json], **others: Json) -> bytes:
    return json.dumps({**others, "messages": messages, "temperature": 0.5}).encode()


def read(body: bytes, most: int = 1_000_000) -> ChatBody:
    raw, fields = fields_of(body)
    return parsed_in_pieces(raw, fields, ChatBody, "messages", MessageSpec, most=most)


@settings(max_examples=200, deadline=None)
@given(items=st.lists(values, max_size=12), size=st.integers(0, 30), indent=st.sampled_from([None, 1]))
def test_pieces_of_a_list_hold_its_items_in_order(items: list[Json], size: int, indent: int | None) -> None:
    text = json.dumps(items, indent=indent, ensure_ascii=False).encode()
    assert [item for piece in pieces(text, size) for item in json.loads(piece)] == items


def test_a_large_body_is_read_as_it_is_in_one_piece() -> None:
    said: list[Json] = [
        {"role": "user", "content": ODD * 50},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": '{"a": "]"}'}}]},
        {"role": "user", "content": [{"type": "text", "text": ODD}]},
    ]
    body = body_of(said * 600)
    assert len(body) > 4 * LARGE_BYTES
    assert read(body) == parsed(body, ChatBody)


def test_a_wrong_item_is_named_by_its_place_in_the_whole_list() -> None:
    messages: list[Json] = [{"role": "user", "content": "x" * 1000}] * 1000
    body = body_of([*messages, {"role": 5, "content": ""}])
    with pytest.raises(msgspec.ValidationError) as whole:
        parsed(body, ChatBody)
    with pytest.raises(msgspec.ValidationError) as caught:
        read(body)
    assert str(caught.value) == str(whole.value)
    assert "messages[1000].role" in str(caught.value)


def test_half_a_surrogate_pair_in_a_large_body_is_read_as_in_a_small_one() -> None:
    said = b'{"role": "user", "content": "\\ud83d"}'
    body = b'{"messages": [' + b", ".join([said] * 10_000) + b"]}"
    small = b'{"messages": [' + said + b"]}"
    assert read(body).messages == parsed(small, ChatBody).messages * 10_000


def test_more_messages_than_the_context_has_tokens_are_not_read_to_the_end() -> None:
    body = body_of([{"role": "user", "content": ""}] * 50_000)
    with pytest.raises(RequestError) as caught:
        read(body, most=10_000)
    assert caught.value.code == "context_length_exceeded"
    assert len(read(body, most=50_000).messages) == 50_000


def test_only_the_conversation_may_be_as_long_as_the_body() -> None:
    long = "x" * 3_000_000
    _, fields = fields_of(json.dumps({"messages": [long], "user": long}).encode())
    with pytest.raises(RequestError) as caught:
        check_sizes(fields)
    assert (caught.value.param, caught.value.code) == ("user", "parameter_too_large")
    del fields["user"]
    check_sizes(fields)


async def test_large_work_leaves_the_loop_to_others() -> None:
    loop_thread = threading.get_ident()
    assert await beside(LARGE_BYTES - 1, threading.get_ident) == loop_thread
    assert await beside(LARGE_BYTES, threading.get_ident) != loop_thread


async def asked(server: Serving, path: str, body: bytes) -> tuple[int, dict[str, Json]]:
    headers = {"Authorization": "Bearer secret"}
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.post(f"{server.url}{path}", data=io.BytesIO(body)) as answer,
    ):
        return answer.status, await answer.json()


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/chat/completions", body_of([{"role": "user", "content": "hello " * 400_000}]), "messages"),
        ("/v1/chat/completions", body_of([{"role": "user", "content": "hello"}] * 30_000), "messages"),
        ("/v1/completions", json.dumps({"prompt": "hello " * 400_000}).encode(), "prompt"),
        ("/v1/completions", json.dumps({"prompt": [5] * 400_000}).encode(), "prompt"),
        ("/v1/responses", json.dumps({"input": "hello " * 400_000}).encode(), "input"),
        ("/v1/responses", json.dumps({"input": [{"role": "user", "content": "h"}] * 30_000}).encode(), "input"),
        ("/v1/messages", body_of([{"role": "user", "content": "hello " * 400_000}], max_tokens=5), "messages"),
    ],
)
async def test_what_can_never_fit_is_refused_by_every_api(server: Serving, path: str, body: bytes, param: str) -> None:
    status, told = await asked(server, path, body)
    error = told["error"]
    assert isinstance(error, dict)
    assert status == 400
    words = "tokens > 1023 maximum" if path == "/v1/messages" else "maximum context length is 1024 tokens"
    assert words in str(error["message"])
    assert error.get("param", param) == param  # Anthropic's errors name none
    assert not server.engine.asked


@pytest.mark.parametrize("path", ["/v1/messages/count_tokens", "/v1/responses/input_tokens"])
async def test_what_does_not_fit_is_counted_all_the_same(server: Serving, renderer: ChatRenderer, path: str) -> None:
    said: list[Json] = [{"role": "user", "content": "hello there " * 30_000}]
    _, told = await asked(server, path, json.dumps({"messages": said, "input": said}).encode())
    counted = told["input_tokens"]
    assert isinstance(counted, int)
    assert counted > len(renderer.encode("hello there " * 30_000)) - 1


async def test_the_loop_turns_while_a_large_body_is_read(renderer: ChatRenderer, store: Store) -> None:
    async with serving(renderer, store, change=lambda parts: replace(parts, context_length=4_000_000)) as server:
        server.says("done")
        large = body_of([{"role": "user", "content": "hello " * 250_000}])
        answering = asyncio.ensure_future(asked(server, "/v1/chat/completions", large))
        began = turned = time.perf_counter()
        silence = 0.0
        while not answering.done():
            await asyncio.sleep(0)
            now = time.perf_counter()
            silence, turned = max(silence, now - turned), now
        assert (await answering)[0] == 200
        assert silence < (turned - began) / 3  # encoding alone takes most of the time
    text = renderer.template.text(server.book.arrivals[-1].messages, generation_prompt=True)
    ids = renderer.template.tokenizer.encode(text, add_special_tokens=False).ids
    assert list(server.engine.asked[-1].prompt.tokens) == ids
