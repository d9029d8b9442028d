"""Chat parameters one by one: each does what it says, is counted, or is refused in words."""

from __future__ import annotations

import json

import aiohttp
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessageParam
from serve_doubles import Serving

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello"}]
READ: ChatCompletionFunctionToolParam = {"type": "function", "function": {"name": "read", "strict": True}}
KEY = {"Authorization": "Bearer secret"}
CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a ü"}}\n</tool_call>'


async def _post(server: Serving, body: dict[str, object], path: str = "chat/completions") -> tuple[int, str, str]:
    async with (
        aiohttp.ClientSession(headers=KEY) as http,
        http.post(f"{server.url}/v1/{path}", json=body) as answer,
    ):
        problem = (await answer.json()).get("error", {})
        return answer.status, str(problem.get("param")), str(problem.get("message"))


REFUSED: list[tuple[dict[str, object], str, str]] = [
    ({"tools": [READ], "tool_choice": "required"}, "tool_choice", "force a tool call"),
    (
        {"tools": [READ], "tool_choice": {"type": "function", "function": {"name": "read"}}},
        "tool_choice",
        "force a tool call",
    ),
    ({"tools": [READ], "tool_choice": {"type": "allowed_tools"}}, "tool_choice", "allows no tools"),
    ({"response_format": {"type": "json_object"}}, "response_format", "cannot constrain an answer to a format"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}},
        "response_format",
        "cannot constrain an answer to a format",
    ),
    ({"presence_penalty": 2.5}, "presence_penalty", "between -2 and 2"),
    ({"repetition_penalty": 0}, "repetition_penalty", "above 0"),
    ({"bad_words": ["x"]}, "bad_words", "engine cannot"),
    ({"guided_json": {"type": "object"}}, "guided_json", "cannot constrain"),
    ({"moderation": {"model": "x"}}, "moderation", "does not moderate"),
    ({"functions": [{"name": "read"}]}, "functions", "tools"),
    ({"audio": {"voice": "x", "format": "wav"}}, "audio", "hears nor speaks"),
]


@pytest.mark.parametrize(("body", "param", "says"), REFUSED, ids=lambda value: str(value)[:50])
async def test_what_the_engine_cannot_do_is_refused_in_words(
    server: Serving, body: dict[str, object], param: str, says: str
) -> None:
    status, found, message = await _post(server, {"messages": HELLO, **body})
    assert (status, found) == (400, param) and says in message
    assert not server.engine.asked and not server.book.turns


IDLE: list[dict[str, object]] = [
    {"response_format": {"type": "text"}},
    {"presence_penalty": 0, "frequency_penalty": 0.0, "repetition_penalty": 1},
    {"logit_bias": {}, "modalities": ["text"], "function_call": "auto"},
    {"tool_choice": "auto"},
    {"n": 1, "logprobs": False, "stop": None, "seed": -1, "top_k": -1},
]


@pytest.mark.parametrize("body", IDLE, ids=str)
async def test_a_value_that_asks_for_nothing_is_no_reason_to_refuse(server: Serving, body: dict[str, object]) -> None:
    server.says("x")
    assert (await _post(server, {"messages": HELLO, **body}))[0] == 200


async def test_tools_that_may_not_be_called_are_not_told_of(server: Serving, client: AsyncOpenAI) -> None:
    server.says("x")
    await client.chat.completions.create(model="tiny", messages=HELLO, tools=[READ], tool_choice="none")
    server.says("x")
    await client.chat.completions.create(model="tiny", messages=HELLO, tools=[READ], tool_choice="auto")
    told = [[tool.name for tool in turn.tools] for turn in server.book.turns]
    assert told == [[], ["read"]]


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_parallel_calls_come_with_ids_names_and_arguments(
    server: Serving, client: AsyncOpenAI, is_streamed: bool
) -> None:
    server.says(f"{CALL}\n{CALL}")
    if is_streamed:
        async with client.chat.completions.stream(model="tiny", messages=HELLO, tools=[READ]) as stream:
            answer = await stream.get_final_completion()
    else:
        answer = await client.chat.completions.create(model="tiny", messages=HELLO, tools=[READ])  # type: ignore[assignment]
    calls = answer.choices[0].message.tool_calls or []
    (turn,) = server.book.turns
    assert [call.id for call in calls] == [call.id for call in turn.reply.tool_calls] and len(calls) == 2
    assert [json.loads(call.function.arguments) for call in calls] == [{"path": "a ü"}] * 2
    assert answer.choices[0].finish_reason == "tool_calls"


async def test_thinking_is_counted_in_the_usage(server: Serving, client: AsyncOpenAI) -> None:
    ids = server.says("<think>\nhm\n</think>\n\nyes")
    answer = await client.chat.completions.create(model="tiny", messages=HELLO)
    assert answer.usage is not None and answer.usage.completion_tokens_details is not None
    assert answer.usage.completion_tokens == len(ids)
    thought = len(server.parts.renderer.encode("hm"))
    assert answer.usage.completion_tokens_details.reasoning_tokens == thought


async def test_wishes_without_effect_are_counted(server: Serving) -> None:
    server.says("x")
    wishes = {"store": True, "service_tier": "flex", "verbosity": "low", "safety_identifier": "x", "prediction": {}}
    assert (await _post(server, {"messages": HELLO, "tools": [READ], **wishes}))[0] == 200
    async with aiohttp.ClientSession() as http, http.get(f"{server.url}/metrics") as answer:
        told = await answer.text()
    for name in (*wishes, "tools.strict"):
        assert f'openclaw_rl_ignored_parameters_total{{name="{name}"}} 1.0' in told


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_log_probabilities_of_bare_text_have_their_places_in_it(
    server: Serving, client: AsyncOpenAI, is_streamed: bool
) -> None:
    ids = server.says("hello there")
    offsets: list[int] = []
    if is_streamed:
        async for event in await client.completions.create(model="tiny", prompt="x", logprobs=0, stream=True):
            logprobs = event.choices[0].logprobs
            offsets += (logprobs.text_offset or []) if logprobs else []
    else:
        answer = await client.completions.create(model="tiny", prompt="x", logprobs=0)
        assert answer.choices[0].logprobs is not None
        offsets = answer.choices[0].logprobs.text_offset or []
    pieces = [server.parts.renderer.table.text([token]) for token in ids[:-1]]
    assert offsets == [len("".join(pieces[:at])) for at in range(len(pieces))]


async def test_too_many_alternatives_of_bare_text_are_refused_by_their_own_name(server: Serving) -> None:
    status, param, message = await _post(server, {"prompt": "x", "logprobs": 25}, "completions")
    assert (status, param) == (400, "logprobs") and "at most 20" in message
