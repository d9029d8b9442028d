"""What Anthropic's clients may send beside words: taken, counted or refused, and how it reads in the ledger."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import anthropic
import pytest
from anthropic import AsyncAnthropic
from anthropic.types import MessageParam, ToolParam
from serve_doubles import Serving

from openclaw_rl.core.completion import Finish
from openclaw_rl.errors import EngineError, RequestError

HELLO: list[MessageParam] = [{"role": "user", "content": "hello"}]
READ: list[ToolParam] = [{"name": "read", "description": "Reads.", "input_schema": {"type": "object"}}]
CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a ü", "lines": [1, 2]}}\n</tool_call>'
KEY = {"x-api-key": "secret"}


async def _post(server: Serving, body: dict[str, object]) -> tuple[int, dict[str, object]]:
    said = {"max_tokens": 50, "messages": HELLO, **body}
    async with (
        aiohttp.ClientSession(server.url, headers=KEY) as http,
        http.post("/v1/messages", json=said) as answer,
    ):
        held = await answer.json()
        return answer.status, held


async def test_a_failed_tool_result_stays_a_failed_one(server: Serving, claude: AsyncAnthropic) -> None:
    server.says("I see")
    results: list[MessageParam] = [
        *HELLO,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "read", "input": {}}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "no such file", "is_error": True},
                {"type": "tool_result", "tool_use_id": "c2", "content": "text", "is_error": False},
            ],
        },
    ]
    await claude.messages.create(model="tiny", max_tokens=50, messages=results, tools=READ)
    (turn,) = server.book.turns
    assert [item.is_error for item in turn.messages[2:]] == [True, False]
    stored = await server.parts.store.turn(turn.id)
    assert stored is not None and stored.messages == turn.messages


async def test_calls_stream_as_fragments_that_join_to_their_json(server: Serving, claude: AsyncAnthropic) -> None:
    server.says(f"{CALL}\n{CALL}")
    fragments: dict[int, str] = {}
    index = -1
    async with claude.messages.stream(model="tiny", max_tokens=200, messages=HELLO, tools=READ) as stream:
        async for event in stream:
            if event.type == "content_block_start":
                index = event.index
            elif event.type == "input_json":
                fragments[index] = fragments.get(index, "") + event.partial_json
        answer = await stream.get_final_message()
    assert [json.loads(text) for text in fragments.values()] == [{"path": "a ü", "lines": [1, 2]}] * 2
    assert [block.input for block in answer.content if block.type == "tool_use"] == [
        {"path": "a ü", "lines": [1, 2]}
    ] * 2
    assert answer.stop_reason == "tool_use"


async def test_a_call_cut_by_the_limit_says_so(server: Serving, claude: AsyncAnthropic) -> None:
    ids = server.says(CALL)
    async with claude.messages.stream(model="tiny", max_tokens=len(ids) - 12, messages=HELLO, tools=READ) as stream:
        answer = await stream.get_final_message()
    assert answer.stop_reason == "max_tokens" and answer.content[0].type == "tool_use"


async def test_tools_may_be_held_back_or_called_one_at_a_time(server: Serving, claude: AsyncAnthropic) -> None:
    server.says("no tools")
    await claude.messages.create(model="tiny", max_tokens=50, messages=HELLO, tools=READ, tool_choice={"type": "none"})
    assert server.book.turns[0].tools == ()
    server.says(f"{CALL}\n{CALL}")
    answer = await claude.messages.create(
        model="tiny",
        max_tokens=200,
        messages=HELLO,
        tools=READ,
        tool_choice={"type": "auto", "disable_parallel_tool_use": True},
    )
    assert [block.type for block in answer.content] == ["tool_use"] and answer.stop_reason == "tool_use"


async def test_thinking_is_counted_in_the_usage(server: Serving, claude: AsyncAnthropic) -> None:
    server.says("<think>\nhm\n</think>\n\nyes")
    answer = await claude.messages.create(model="tiny", max_tokens=50, messages=HELLO)
    details = answer.usage.output_tokens_details
    assert details is not None and details.thinking_tokens == len(server.parts.renderer.encode("hm"))
    assert answer.usage.service_tier == "standard"


@pytest.mark.parametrize(
    ("user_id", "session"),
    [
        ("user_ab12_account_cd34_session_0123abcd-0000-4000-8000-0123456789ab", "0123abcd-0000-4000-8000-0123456789ab"),
        ('{"device_id": "d", "session_id": "s-1"}', "s-1"),
        ("alice", None),
        ("{broken", None),
        ('{"session_id": 3}', None),
    ],
)
async def test_the_session_in_a_users_id_is_the_session(
    server: Serving, claude: AsyncAnthropic, user_id: str, session: str | None
) -> None:
    server.says("x")
    await claude.messages.create(model="tiny", max_tokens=9, messages=HELLO, metadata={"user_id": user_id})
    told = server.book.arrivals[0].facts["metadata"]
    assert told == ({"user_id": user_id} if session is None else {"user_id": user_id, "session_id": session})


async def test_a_session_that_is_named_outright_stays(server: Serving) -> None:
    server.says("x")
    await _post(server, {"metadata": {"user_id": "user_a_session_0123456789", "session_id": "mine"}})
    assert server.book.arrivals[0].facts["metadata"] == {"user_id": "user_a_session_0123456789", "session_id": "mine"}


async def test_what_has_no_effect_is_taken_and_counted(server: Serving) -> None:
    server.says("x")
    mark = {"cache_control": {"type": "ephemeral"}}
    status, _ = await _post(
        server,
        {
            "system": [{"type": "text", "text": "Be kind.", **mark}],
            "messages": [
                *HELLO,
                {
                    "role": "assistant",
                    "content": [{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "hi"}],
                },
                {"role": "user", "content": "and?"},
            ],
            "tools": [{**READ[0], "strict": True, "defer_loading": True}],
            "thinking": {"type": "enabled", "budget_tokens": 2048, "display": "omitted"},
            "service_tier": "auto",
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            "sparkle": 3,
        },
    )
    assert status == 200 and server.book.turns[0].messages[2].reasoning is None
    async with aiohttp.ClientSession(server.url) as http, http.get("/metrics") as answer:
        told = await answer.text()
    for name in (
        "cache_control",
        "redacted_thinking",
        "tools.strict",
        "tools.defer_loading",
        "thinking.budget_tokens",
        "thinking.display",
        "service_tier",
        "context_management",
        "sparkle",
    ):
        assert f'openclaw_rl_ignored_parameters_total{{name="{name}"}} 1.0' in told


REFUSED: list[tuple[dict[str, object], str]] = [
    ({"output_format": {"type": "json_schema", "schema": {}}}, "cannot constrain an answer to a format"),
    ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, "cannot constrain an answer to a format"),
    ({"stop": [""]}, "stop holds an empty text"),
    ({"stop_sequences": ["x"] * 9, "stop": ["y"] * 8}, "stop_sequences holds 17"),
    ({"stop_sequences": [""]}, "stop_sequences holds an empty text"),
    ({"stop_sequences": ["x"] * 17}, "stop_sequences holds 17"),
    ({"tools": READ, "tool_choice": {"type": "tool", "name": "read"}}, "force a tool call"),
    ({"tools": [{"name": "read"}]}, "input_schema is not an object"),
    ({"tools": [{"type": "custom", "input_schema": {}}]}, "has no name"),
    ({"thinking": {"type": "between_tools"}}, "thinking.type"),
    ({"max_tokens": 0}, "at least one token"),
    ({"temperature": 99}, "temperature"),
    ({"messages": []}, "messages is empty"),
    ({"messages": [{"role": "user", "content": []}]}, "is empty"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "has no text"),
    ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "missing required field `type`"),
    ({"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}]}, "tool_use_id"),
    ({"messages": [{"role": "user", "content": "hello " * 2000}]}, "prompt is too long: "),
]


@pytest.mark.parametrize(("body", "says"), REFUSED, ids=lambda value: str(value)[:50])
async def test_what_cannot_be_had_is_refused_in_anthropics_shape(
    server: Serving, body: dict[str, object], says: str
) -> None:
    status, held = await _post(server, body)
    problem = held["error"]
    assert status == 400 and held["type"] == "error" and isinstance(problem, dict)
    assert problem["type"] == "invalid_request_error" and says in str(problem["message"])
    assert not server.engine.asked and not server.book.turns


async def test_troubles_of_the_engine_have_types_the_client_knows(server: Serving, claude: AsyncAnthropic) -> None:
    server.says("x", fails_at=0, problem=RequestError("the queue is full", status=429, code="queue_full"))
    with pytest.raises(anthropic.RateLimitError) as full:
        await claude.messages.create(model="tiny", max_tokens=9, messages=HELLO, stream=True)
    assert isinstance(full.value.body, dict) and full.value.body["error"]["type"] == "rate_limit_error"
    server.says("x", fails_at=0, problem=EngineError("the engine is gone"))
    with pytest.raises(anthropic.InternalServerError) as gone:
        await claude.messages.create(model="tiny", max_tokens=9, messages=HELLO)
    assert isinstance(gone.value.body, dict) and gone.value.body["error"]["type"] == "api_error"


async def test_a_stream_shows_that_it_lives_before_the_first_token(server: Serving) -> None:
    server.says("x", waits_at=0)
    body = {"max_tokens": 9, "messages": HELLO, "stream": True}
    async with (
        aiohttp.ClientSession(server.url, headers=KEY) as http,
        http.post("/v1/messages", json=body) as answer,
    ):
        start, ping = await answer.content.readuntil(b"\n\n"), await answer.content.readuntil(b"\n\n")
        server.engine.go.set()
        await answer.read()
    assert start.startswith(b"event: message_start\n")
    assert ping == b'event: ping\ndata: {"type":"ping"}\n\n'


async def test_a_client_that_goes_away_frees_the_engine(server: Serving, claude: AsyncAnthropic) -> None:
    server.says("hello there", waits_at=2)
    stream = await claude.messages.create(model="tiny", max_tokens=50, messages=HELLO, stream=True)
    await anext(aiter(stream))
    await stream.close()
    turn = await server.book.committed.get()
    assert turn.completion.finish is Finish.CANCELLED
    assert await asyncio.wait_for(server.given.get(), 30) == 2
