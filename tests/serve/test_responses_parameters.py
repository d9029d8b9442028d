"""What a request of the Responses API may ask for: done, counted, or refused in words; and what is fetched later."""

from __future__ import annotations

import aiohttp
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response
from serve_doubles import READ, THINKS_AND_CALLS, Serving


async def test_what_a_response_was_given_is_listed_page_by_page(server: Serving, client: AsyncOpenAI) -> None:
    server.says(THINKS_AND_CALLS)
    first = await client.responses.create(model="tiny", input="hello", instructions="Be kind.", tools=[READ])
    server.says("done")
    call = server.book.turns[0].reply.tool_calls[0].id
    answer = await client.responses.create(
        model="tiny",
        input=[{"type": "function_call_output", "call_id": call, "output": "A"}],
        previous_response_id=first.id,
        tools=[READ],
    )
    listed = [item async for item in client.responses.input_items.list(answer.id, order="asc", limit=2)]
    kinds = [item.type for item in listed]
    assert kinds == ["message", "reasoning", "message", "function_call", "function_call", "function_call_output"]
    newest = await client.responses.input_items.list(answer.id)
    assert [item.id for item in newest.data] == [item.id for item in reversed(listed)]


async def test_deleting_and_cancelling_by_name_are_refused_with_the_reason(server: Serving) -> None:
    server.says("one")
    headers = {"Authorization": "Bearer secret"}
    async with aiohttp.ClientSession(server.url, headers=headers) as http:
        async with http.post("/v1/responses", json={"input": "hello"}) as answer:
            name = (await answer.json())["id"]
        for method, path, says in (
            ("DELETE", f"/v1/responses/{name}", "turn of the ledger"),
            ("POST", f"/v1/responses/{name}/cancel", "background"),
            ("GET", f"/v1/responses/{name}?stream=true", "cannot be streamed again"),
            ("GET", f"/v1/responses/{name}/input_items?limit=0", "limit"),
            ("GET", f"/v1/responses/{name}/input_items?order=up", "order"),
            ("GET", f"/v1/responses/{name}/input_items?after=x", "no item x"),
        ):
            async with http.request(method, path) as answer:
                assert answer.status == 400 and says in (await answer.json())["error"]["message"]


async def test_thinking_is_given_as_a_summary_where_one_is_asked_for(server: Serving, client: AsyncOpenAI) -> None:
    server.says("so\n</think>\n\nyes")
    options = {"chat_template_kwargs": {"enable_thinking": True}}
    async with client.responses.stream(
        model="tiny", input="hello", reasoning={"effort": "high", "summary": "auto"}, extra_body=options
    ) as stream:
        deltas = [event.delta async for event in stream if event.type == "response.reasoning_summary_text.delta"]
        answer = await stream.get_final_response()
    thought = answer.output[0]
    assert thought.type == "reasoning" and not thought.content
    assert [part.text for part in thought.summary] == ["so"] == ["".join(deltas)]
    (first,) = server.book.turns
    assert first.options == {"enable_thinking": True}
    server.says("more")
    talk: list[object] = [{"role": "user", "content": "hello"}, *(item.to_dict() for item in answer.output)]
    talk.append({"role": "user", "content": "go on"})
    await client.responses.create(model="tiny", input=talk, extra_body=options)  # type: ignore[arg-type]
    assert server.book.turns[1].messages[1].reasoning == "so"


async def test_no_effort_at_all_asks_the_template_for_no_thinking(server: Serving, client: AsyncOpenAI) -> None:
    server.says("yes")
    await client.responses.create(model="tiny", input="hello", reasoning={"effort": "none"})
    assert server.book.turns[0].options == {"enable_thinking": False}


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_log_probabilities_are_those_of_the_text(server: Serving, client: AsyncOpenAI, is_streamed: bool) -> None:
    server.says("<think>\nhm\n</think>\n\nyes ü")
    given = 0
    if is_streamed:
        async with client.responses.stream(
            model="tiny", input="hello", include=["message.output_text.logprobs"], top_logprobs=2
        ) as stream:
            async for event in stream:
                if event.type == "response.output_text.delta":
                    given += len(event.logprobs)
            answer: Response = await stream.get_final_response()
    else:
        answer = await client.responses.create(
            model="tiny", input="hello", include=["message.output_text.logprobs"], top_logprobs=2
        )
    message = answer.output[-1]
    assert message.type == "message" and message.content[0].type == "output_text"
    logprobs = message.content[0].logprobs
    assert logprobs is not None
    assert bytes(byte for item in logprobs for byte in item.bytes) == "yes ü".encode()
    assert [item.logprob for item in logprobs[0].top_logprobs] == [-0.5, -1.5]
    assert not is_streamed or given == len(logprobs)


async def test_one_call_at_a_time_ends_behind_the_first(server: Serving, client: AsyncOpenAI) -> None:
    call = '<tool_call>\n{"name": "read", "arguments": {}}\n</tool_call>'
    server.says(f"{call}\n{call}")
    answer = await client.responses.create(model="tiny", input="hello", tools=[READ], parallel_tool_calls=False)
    assert [item.type for item in answer.output] == ["function_call"] and answer.parallel_tool_calls is False


async def test_counted_tokens_are_those_the_model_would_read(server: Serving, client: AsyncOpenAI) -> None:
    counted = await client.responses.input_tokens.count(
        model="tiny", input="hello", instructions="Be kind.", tools=[READ]
    )
    server.says("x")
    await client.responses.create(model="tiny", input="hello", instructions="Be kind.", tools=[READ])
    assert counted.input_tokens == len(server.book.turns[0].prompt)


async def test_sampling_parameters_reach_the_engine(server: Serving, client: AsyncOpenAI) -> None:
    server.says("x")
    more = {"seed": 3, "top_k": 7, "min_p": 0.1}
    answer = await client.responses.create(
        model="tiny", input="hello", temperature=0.5, top_p=0.9, max_output_tokens=9, extra_body=more
    )
    (asked,) = server.engine.asked
    sampling = asked.sampling
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens) == (0.5, 0.9, 9)
    assert (sampling.seed, sampling.top_k, sampling.min_p) == (3, 7, 0.1)
    assert (answer.temperature, answer.top_p, answer.max_output_tokens) == (0.5, 0.9, 9)


REFUSED: list[tuple[dict[str, object], int, str | None, str]] = [
    ({}, 400, "input", "empty"),
    ({"input": []}, 400, "input", "empty"),
    ({"input": 3}, 400, "input", "str"),
    ({"input": "x", "model": "gpt-9"}, 404, "model", "tiny"),
    ({"input": "x", "background": True}, 400, "background", "stream"),
    ({"input": "x", "conversation": "conv_1"}, 400, "conversation", "previous_response_id"),
    ({"input": "x", "prompt": {"id": "pmpt_1"}}, 400, "prompt", "templates"),
    ({"input": "x", "max_tokens": 5}, 400, "max_tokens", "max_output_tokens"),
    ({"input": "x", "max_output_tokens": 0}, 400, "max_output_tokens", "at least one"),
    ({"input": "x", "temperature": 99}, 400, "temperature", "between 0"),
    ({"input": "x", "top_logprobs": 50}, 400, "top_logprobs", "20"),
    (
        {"input": "x", "text": {"format": {"type": "json_schema", "name": "x", "schema": {}}}},
        400,
        "text.format",
        "constrain",
    ),
    ({"input": "x", "text": {"format": {"type": "json_object"}}}, 400, "text.format", "constrain"),
    ({"input": "x", "tool_choice": "required"}, 400, "tool_choice", "no tools"),
    ({"input": "x", "tool_choice": {"type": "function", "name": "read"}}, 400, "tool_choice", "not among the tools"),
    ({"input": "x", "tools": [{"type": "function"}]}, 400, "tools", "no name"),
    ({"input": "x", "tools": [{"type": "function", "name": "f", "parameters": 3}]}, 400, "tools", "no object"),
    ({"input": [{"role": "narrator", "content": "x"}]}, 400, "input[0].role", "narrator"),
    ({"input": [{"role": "user"}]}, 400, "input[0].content", "no content"),
    ({"input": [{"type": "function_call", "name": "f"}]}, 400, "input[0]", "call_id"),
    ({"input": [{"type": "function_call_output", "output": "x"}]}, 400, "input[0]", "call_id"),
    ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, 400, "input[0].content[0]", "no text"),
    ({"input": "hello " * 2000, "truncation": "auto"}, 400, "input", "exceeds the context window"),
]


@pytest.mark.parametrize(("body", "status", "param", "says"), REFUSED, ids=lambda value: str(value)[:60])
async def test_a_bad_request_is_told_what_is_wrong(
    server: Serving, body: dict[str, object], status: int, param: str | None, says: str
) -> None:
    headers = {"Authorization": "Bearer secret"}
    async with (
        aiohttp.ClientSession(server.url, headers=headers) as http,
        http.post("/v1/responses", json=body) as answer,
    ):
        problem = (await answer.json())["error"]
        assert (answer.status, problem["param"]) == (status, param)
    assert says in problem["message"] and not server.engine.asked and not server.book.turns


async def test_what_has_no_effect_is_taken_and_counted(server: Serving, client: AsyncOpenAI) -> None:
    server.says("x")
    await client.responses.create(
        model="tiny",
        input="hello",
        tools=[READ],
        truncation="auto",
        text={"format": {"type": "text"}, "verbosity": "low"},
        include=["reasoning.encrypted_content"],
        service_tier="flex",
        max_tool_calls=3,
        extra_body={"sparkle": 3},
    )
    async with aiohttp.ClientSession(server.url) as http, http.get("/metrics") as answer:
        told = await answer.text()
    for name in (
        "truncation",
        "text.verbosity",
        "tools.strict",
        "include.reasoning.encrypted_content",
        "service_tier",
        "max_tool_calls",
        "sparkle",
    ):
        assert f'openclaw_rl_ignored_parameters_total{{name="{name}"}} 1.0' in told


async def test_the_model_is_told_of_functions_alone_where_an_agent_offers_more(
    server: Serving, client: AsyncOpenAI
) -> None:
    server.says("x")
    offered: list[object] = [{"type": "web_search"}, READ, {"type": "image_generation"}]
    answer = await client.responses.create(model="tiny", input="hello", tools=offered)  # type: ignore[arg-type]
    assert [tool.type for tool in answer.tools] == ["function"]
    assert [tool.name for tool in server.book.turns[0].tools] == ["read"]
    async with aiohttp.ClientSession(server.url) as http, http.get("/metrics") as told:
        text = await told.text()
    assert 'name="tools.image_generation"} 1.0' in text and 'name="tools.web_search"} 1.0' in text


async def test_half_a_surrogate_pair_does_not_refuse_the_request(server: Serving) -> None:
    server.says("hi")
    body = b'{"input": [{"role": "user", "content": [{"type": "input_text", "text": "cut \\ud83d"}]}]}'
    headers = {"Authorization": "Bearer secret"}
    async with (
        aiohttp.ClientSession(server.url, headers=headers) as http,
        http.post("/v1/responses", data=body) as answer,
    ):
        assert answer.status == 200
    assert server.book.turns[0].messages[0].text == "cut ?"
