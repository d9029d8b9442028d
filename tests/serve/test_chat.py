"""Chat completions over real HTTP with the official client."""

from __future__ import annotations

import asyncio

import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionMessageParam
from serve_doubles import VERSION, Serving

from openclaw_rl.core.completion import Finish, SpanKind
from openclaw_rl.core.message import Role
from openclaw_rl.core.turn import TurnKind

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello"}]


async def test_an_answer_comes_whole_with_its_turn_version_and_usage(server: Serving, client: AsyncOpenAI) -> None:
    ids = server.says("hello there")
    raw = await client.chat.completions.with_raw_response.create(model="tiny", messages=HELLO)
    answer = raw.parse()
    (turn,) = server.book.turns
    assert raw.headers["x-openclaw-rl-turn"] == turn.id
    assert raw.headers["x-openclaw-rl-version"] == str(VERSION)
    assert answer.id == f"chatcmpl-{turn.id}"
    assert answer.choices[0].message.content == "hello there"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None and answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens == len(turn.prompt)
    assert answer.usage.completion_tokens == len(ids)
    assert answer.usage.prompt_tokens_details.cached_tokens == 5
    assert turn.completion.tokens == ids
    assert turn.completion.version == VERSION
    assert turn.reply.text == "hello there"
    assert turn.kind is TurnKind.MAIN and turn.user == "alice"


async def test_a_stream_brings_each_token_as_it_is_sampled(server: Serving, client: AsyncOpenAI) -> None:
    ids = server.says("hello there", waits_at=1)
    stream = await client.chat.completions.create(
        model="tiny", messages=HELLO, stream=True, stream_options={"include_usage": True}
    )
    assert stream.response.headers["x-openclaw-rl-version"] == str(VERSION)
    events = aiter(stream)
    role = await anext(events)
    assert role.choices[0].delta.role == "assistant"
    first = await anext(events)  # the engine still waits in front of its second token
    assert first.choices[0].delta.content
    server.engine.go.set()
    rest = [event async for event in events]
    text = first.choices[0].delta.content + "".join(
        event.choices[0].delta.content or "" for event in rest if event.choices
    )
    assert text == "hello there"
    assert [event.choices[0].finish_reason for event in rest if event.choices][-1] == "stop"
    assert rest[-1].usage is not None and rest[-1].usage.completion_tokens == len(ids)
    assert not rest[-1].choices


async def test_the_last_event_is_held_until_the_turn_is_stored(server: Serving, client: AsyncOpenAI) -> None:
    server.book.may_commit.clear()
    server.says("hello there")
    stream = await client.chat.completions.create(model="tiny", messages=HELLO, stream=True)
    seen: list[str] = []

    async def read() -> None:
        async for event in stream:
            seen.append(event.choices[0].finish_reason or event.choices[0].delta.content or "")

    async with asyncio.TaskGroup() as group:
        task = group.create_task(read())
        await server.given.get()  # every token has been sampled
        while "".join(seen) != "hello there":
            await asyncio.wait([task], timeout=0.01)
        assert not task.done() and "stop" not in seen
        server.book.may_commit.set()
    assert seen[-1] == "stop"


async def test_thinking_and_parallel_calls_are_told_apart_while_streaming(server: Serving, client: AsyncOpenAI) -> None:
    server.says(
        "<think>\nfirst the file\n</think>\n\nI read it.\n"
        '<tool_call>\n{"name": "read", "arguments": {"path": "a ü"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "read", "arguments": {"path": "b"}}\n</tool_call>'
    )
    stream = await client.chat.completions.create(
        model="tiny",
        messages=HELLO,
        stream=True,
        tools=[{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}],
    )
    thought, said, names, arguments, ids, reason = "", "", {}, {0: "", 1: ""}, {}, ""
    async for event in stream:
        delta = event.choices[0].delta
        thought += (delta.model_extra or {}).get("reasoning_content") or ""
        said += delta.content or ""
        for call in delta.tool_calls or []:
            assert call.function is not None
            if call.id:
                ids[call.index], names[call.index] = call.id, call.function.name
                assert call.function.arguments == "" and call.type == "function"
            arguments[call.index] += call.function.arguments or ""
        reason = event.choices[0].finish_reason or reason
    assert (thought, said, reason) == ("first the file", "I read it.", "tool_calls")
    assert names == {0: "read", 1: "read"} and arguments == {0: '{"path": "a ü"}', 1: '{"path": "b"}'}
    (turn,) = server.book.turns
    assert [call.id for call in turn.reply.tool_calls] == [ids[0], ids[1]] and ids[0] != ids[1]
    assert turn.tools[0].name == "read"
    spans = turn.completion.spans
    assert spans[0].start == 0 and spans[-1].stop == len(turn.completion.tokens)
    assert {SpanKind.REASONING, SpanKind.TEXT, SpanKind.TOOL_CALL, SpanKind.MARK} == {span.kind for span in spans}


async def test_a_stop_text_across_tokens_ends_the_answer_and_never_leaks(server: Serving, client: AsyncOpenAI) -> None:
    table = server.parts.renderer.template.tokenizer
    ids = [table.token_to_id(char) for char in "heSTOPxx"]  # each letter a token of its own
    server.says_ids(ids)
    stream = await client.chat.completions.create(model="tiny", messages=HELLO, stream=True, stop=["STOP"])
    events = [event async for event in stream]
    assert "".join(event.choices[0].delta.content or "" for event in events) == "he"
    assert events[-1].choices[0].finish_reason == "stop"
    (turn,) = server.book.turns
    assert turn.completion.tokens == tuple(ids[:6])  # as sampled, the stop text included, and no further
    assert turn.completion.finish is Finish.STOP and turn.reply.text == "he"
    assert await server.given.get() == 6


async def test_what_only_began_like_a_stop_text_is_given_out(server: Serving, client: AsyncOpenAI) -> None:
    server.says("heSTO")
    answer = await client.chat.completions.create(model="tiny", messages=HELLO, stop="STOP")
    assert answer.choices[0].message.content == "heSTO"


async def test_several_answers_are_siblings_of_one_group(server: Serving, client: AsyncOpenAI) -> None:
    server.says("one")
    server.says("two")
    raw = await client.chat.completions.with_raw_response.create(model="tiny", messages=HELLO, n=2, seed=5)
    answer = raw.parse()
    assert sorted(choice.message.content or "" for choice in answer.choices) == ["one", "two"]
    turns = server.book.turns
    assert turns[0].group == turns[1].group is not None
    assert raw.headers["x-openclaw-rl-turn"].split(",") == [turn.id for turn in turns]
    assert [asked.sampling.seed for asked in server.engine.asked] == [5, 6]


async def test_several_answers_stream_side_by_side(server: Serving, client: AsyncOpenAI) -> None:
    server.says("one")
    server.says("two")
    stream = await client.chat.completions.create(model="tiny", messages=HELLO, n=2, stream=True)
    said = {0: "", 1: ""}
    async for event in stream:
        for choice in event.choices:
            said[choice.index] += choice.delta.content or ""
    assert said == {0: "one", 1: "two"}


async def test_log_probabilities_come_with_bytes_and_alternatives(server: Serving, client: AsyncOpenAI) -> None:
    server.says("ü")
    answer = await client.chat.completions.create(model="tiny", messages=HELLO, logprobs=True, top_logprobs=2)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None
    assert [byte for item in logprobs.content for byte in item.bytes or []] == list("ü".encode())
    assert [item.logprob for item in logprobs.content] == [-0.5, -0.5]
    assert [top.logprob for top in logprobs.content[0].top_logprobs] == [-0.5, -1.5]


async def test_streamed_log_probabilities_cover_every_token(server: Serving, client: AsyncOpenAI) -> None:
    ids = server.says("hello ü")
    stream = await client.chat.completions.create(model="tiny", messages=HELLO, logprobs=True, stream=True)
    found = 0
    async for event in stream:
        logprobs = event.choices[0].logprobs
        found += len(logprobs.content or []) if logprobs else 0
    assert found == len(ids) - 1  # all but the end mark


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_a_limit_cuts_the_answer_and_says_so(server: Serving, client: AsyncOpenAI, name: str) -> None:
    server.says("hello there")
    answer = await client.chat.completions.create(model="tiny", messages=HELLO, extra_body={name: 1})
    assert answer.choices[0].finish_reason == "length"
    (turn,) = server.book.turns
    assert len(turn.completion.tokens) == 1 and turn.completion.finish is Finish.LENGTH


async def test_sampling_parameters_reach_the_engine(server: Serving, client: AsyncOpenAI) -> None:
    server.says("x")
    await client.chat.completions.create(
        model="tiny", messages=HELLO, temperature=0.5, top_p=0.9, seed=3, extra_body={"top_k": 7, "min_p": 0.1}
    )
    (asked,) = server.engine.asked
    sampling = asked.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p, sampling.seed) == (
        0.5,
        0.9,
        7,
        0.1,
        3,
    )
    assert sampling.max_tokens == 1024 - len(asked.prompt)
    assert sampling.stop_ids == server.parts.eos_ids


async def test_one_call_at_a_time_ends_behind_the_first(server: Serving, client: AsyncOpenAI) -> None:
    call = '<tool_call>\n{"name": "read", "arguments": {}}\n</tool_call>'
    server.says(f"{call}\n{call}")
    answer = await client.chat.completions.create(
        model="tiny",
        messages=HELLO,
        parallel_tool_calls=False,
        tools=[{"type": "function", "function": {"name": "read"}}],
    )
    assert len(answer.choices[0].message.tool_calls or []) == 1
    assert answer.choices[0].finish_reason == "tool_calls"


async def test_a_second_turn_goes_on_with_the_sampled_ids(server: Serving, client: AsyncOpenAI) -> None:
    letters = server.parts.renderer.template.tokenizer
    ids = [*(letters.token_to_id(char) for char in "hello"), server.parts.eos_ids[0]]
    assert server.parts.renderer.encode("hello<|im_end|>") != tuple(ids)  # not how the text would be encoded
    server.says_ids(ids)
    await client.chat.completions.create(model="tiny", messages=HELLO)
    server.says("more")
    talk: list[ChatCompletionMessageParam] = [
        *HELLO,
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "and?"},
    ]
    await client.chat.completions.create(model="tiny", messages=talk)
    first, second = server.book.turns
    served = (*first.prompt.tokens, *ids)
    assert second.prompt.tokens[: len(served)] == served
    assert second.prompt.continued == len(served)
    assert second.parent == first.id


async def test_thinking_that_the_template_opened_is_thinking(server: Serving, client: AsyncOpenAI) -> None:
    server.says("hm\n</think>\n\nyes")
    answer = await client.chat.completions.create(
        model="tiny", messages=HELLO, extra_body={"chat_template_kwargs": {"enable_thinking": True}}
    )
    message = answer.choices[0].message
    assert (message.model_extra or {})["reasoning_content"] == "hm" and message.content == "yes"
    assert server.book.turns[0].options == {"enable_thinking": True}


async def test_the_collector_sees_headers_and_facts_but_no_key(server: Serving, client: AsyncOpenAI) -> None:
    server.says("x")
    await client.chat.completions.create(
        model="tiny", messages=HELLO, extra_headers={"X-Session-Id": "abc"}, extra_body={"turn_type": "main"}, user="u"
    )
    (arrival,) = server.book.arrivals
    assert arrival.headers["x-session-id"] == "abc" and "authorization" not in arrival.headers
    assert arrival.facts == {"turn_type": "main", "user": "u"} and arrival.key_name == "alice"


async def test_a_client_that_goes_away_frees_the_engine_and_leaves_a_cancelled_turn(
    server: Serving, client: AsyncOpenAI
) -> None:
    ids = server.says("hello there", waits_at=2)
    stream = await client.chat.completions.create(model="tiny", messages=HELLO, stream=True)
    await anext(aiter(stream))
    await stream.close()
    turn = await server.book.committed.get()
    assert turn.completion.finish is Finish.CANCELLED
    assert turn.completion.tokens == ids[:2]
    assert await server.given.get() == 2


async def test_a_client_that_gives_up_waiting_for_a_whole_answer_frees_the_engine(
    server: Serving, client: AsyncOpenAI
) -> None:
    server.says("hello there", waits_at=0)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(client.chat.completions.create(model="tiny", messages=HELLO))
        while not server.engine.asked:
            await asyncio.wait([task], timeout=0.01)
        task.cancel()
    turn = await server.book.committed.get()
    assert turn.completion.finish is Finish.CANCELLED and turn.completion.tokens == ()
    assert turn.reply.role is Role.ASSISTANT


async def test_the_synchronous_client_works_too(server: Serving) -> None:
    server.says("hello")
    with OpenAI(base_url=f"{server.url}/v1", api_key="secret", max_retries=0) as client:
        answer = await asyncio.to_thread(client.chat.completions.create, model="default", messages=HELLO)
    assert answer.choices[0].message.content == "hello" and answer.model == "tiny"
