"""Anthropic's Messages API over real HTTP with the official client."""

from __future__ import annotations

import anthropic
import pytest
from anthropic import AsyncAnthropic
from anthropic.types import MessageParam, ToolParam
from serve_doubles import THINKS_AND_CALLS, VERSION, Serving

from openclaw_rl.core.message import Role
from openclaw_rl.errors import EngineError

HELLO: list[MessageParam] = [{"role": "user", "content": "hello"}]
READ: list[ToolParam] = [{"name": "read", "description": "Reads.", "input_schema": {"type": "object"}}]


async def test_an_answer_comes_whole_with_its_turn_version_and_usage(server: Serving, claude: AsyncAnthropic) -> None:
    ids = server.says("hello there")
    raw = await claude.messages.with_raw_response.create(model="tiny", max_tokens=50, messages=HELLO, system="Be kind.")
    answer = await raw.parse()
    (turn,) = server.book.turns
    assert raw.headers["x-openclaw-rl-turn"] == turn.id and answer.id == f"msg_{turn.id}"
    assert raw.headers["x-openclaw-rl-version"] == str(VERSION)
    assert [block.to_dict() for block in answer.content] == [{"type": "text", "text": "hello there"}]
    assert (answer.stop_reason, answer.stop_sequence) == ("end_turn", None)
    assert answer.usage.cache_read_input_tokens == 5
    assert answer.usage.input_tokens == len(turn.prompt) - 5 and answer.usage.output_tokens == len(ids)
    assert [(item.role, item.text) for item in turn.messages] == [(Role.SYSTEM, "Be kind."), (Role.USER, "hello")]
    assert turn.api == "messages"


async def test_thinking_and_parallel_calls_stream_as_blocks_in_order(server: Serving, claude: AsyncAnthropic) -> None:
    ids = server.says(THINKS_AND_CALLS)
    async with claude.messages.stream(model="tiny", max_tokens=200, messages=HELLO, tools=READ) as stream:
        kinds = [event.type async for event in stream]
        answer = await stream.get_final_message()
    (turn,) = server.book.turns
    thought, said, one, two = answer.content
    assert thought.type == "thinking" and thought.thinking == "first the file" and thought.signature == turn.id
    assert said.type == "text" and said.text == "I read it."
    assert one.type == "tool_use" and one.input == {"path": "a ü"} and one.name == "read"
    assert two.type == "tool_use" and two.input == {"path": "b"}
    assert [one.id, two.id] == [call.id for call in turn.reply.tool_calls]
    assert answer.stop_reason == "tool_use"
    assert answer.usage.output_tokens == len(ids) and answer.usage.cache_read_input_tokens == 5
    assert answer.usage.input_tokens == len(turn.prompt) - 5
    assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 4


async def test_calls_come_whole_and_their_results_go_on_from_the_served_ids(
    server: Serving, claude: AsyncAnthropic
) -> None:
    server.says(THINKS_AND_CALLS)
    answer = await claude.messages.create(model="tiny", max_tokens=200, messages=HELLO, tools=READ)
    assert [block.type for block in answer.content] == ["thinking", "text", "tool_use", "tool_use"]
    one, two = (block for block in answer.content if block.type == "tool_use")
    (first,) = server.book.turns
    server.says("done")
    await claude.messages.create(
        model="tiny",
        max_tokens=200,
        tools=READ,
        messages=[
            *HELLO,
            {"role": "assistant", "content": answer.content},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": one.id, "content": "A"},
                    {"type": "tool_result", "tool_use_id": two.id, "content": [{"type": "text", "text": "B"}]},
                    {"type": "text", "text": "go on", "cache_control": {"type": "ephemeral"}},
                ],
            },
        ],
    )
    second = server.book.turns[1]
    assert [item.role.value for item in second.messages] == ["user", "assistant", "tool", "tool", "user"]
    assert [item.tool_call_id for item in second.messages[2:4]] == [one.id, two.id]
    assert second.prompt.continued >= len(first.prompt) + len(first.completion.tokens)


async def test_a_stream_is_live_and_its_end_is_held_until_the_turn_is_stored(
    server: Serving, claude: AsyncAnthropic
) -> None:
    server.book.may_commit.clear()
    server.says("hello there", waits_at=1)
    stream = await claude.messages.create(model="tiny", max_tokens=50, messages=HELLO, stream=True)
    events = aiter(stream)
    kinds = [(await anext(events)).type for _ in range(3)]  # the engine still waits in front of its second token
    assert kinds == ["message_start", "content_block_start", "content_block_delta"]
    assert (await server.stored_before_the_end(events))[-3:] == ["content_block_stop", "message_delta", "message_stop"]


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_stop_sequence_and_a_limit_say_so(server: Serving, claude: AsyncAnthropic, is_streamed: bool) -> None:
    endings: list[tuple[str | None, str | None]] = []
    for stop, most in ((["the", "EN"], 50), ([], 3)):
        server.says("wEND and more")
        if is_streamed:
            async with claude.messages.stream(
                model="tiny", max_tokens=most, messages=HELLO, stop_sequences=stop
            ) as stream:
                answer = await stream.get_final_message()
        else:
            made = await claude.messages.create(model="tiny", max_tokens=most, messages=HELLO, stop_sequences=stop)
            endings.append((made.stop_reason, made.stop_sequence))
            continue
        endings.append((answer.stop_reason, answer.stop_sequence))
    assert endings == [("stop_sequence", "EN"), ("max_tokens", None)]
    assert server.book.turns[0].reply.text == "w"


async def test_thinking_is_the_templates_option(server: Serving, claude: AsyncAnthropic) -> None:
    server.says("so\n</think>\n\nyes")
    answer = await claude.messages.create(
        model="tiny", max_tokens=2000, messages=HELLO, thinking={"type": "enabled", "budget_tokens": 1024}
    )
    assert [block.type for block in answer.content] == ["thinking", "text"]
    assert server.book.turns[0].options == {"enable_thinking": True}


async def test_counted_tokens_are_those_the_model_would_read(server: Serving, claude: AsyncAnthropic) -> None:
    counted = await claude.messages.count_tokens(model="tiny", messages=HELLO, tools=READ, system="Be kind.")
    server.says("x")
    await claude.messages.create(model="tiny", max_tokens=9, messages=HELLO, tools=READ, system="Be kind.")
    assert counted.input_tokens == len(server.book.turns[0].prompt)


async def test_errors_have_anthropics_shape_and_types(server: Serving, claude: AsyncAnthropic) -> None:
    with pytest.raises(anthropic.BadRequestError) as forced:
        await claude.messages.create(
            model="tiny", max_tokens=9, messages=HELLO, tools=READ, tool_choice={"type": "any"}
        )
    assert isinstance(forced.value.body, dict) and forced.value.body["type"] == "error"
    assert forced.value.body["error"]["type"] == "invalid_request_error"
    assert "force a tool call" in forced.value.body["error"]["message"]
    with pytest.raises(anthropic.NotFoundError) as unknown:
        await claude.messages.create(model="nobody", max_tokens=9, messages=HELLO)
    assert isinstance(unknown.value.body, dict) and unknown.value.body["error"]["type"] == "not_found_error"
    with pytest.raises(anthropic.AuthenticationError) as stranger:
        await claude.with_options(api_key="wrong").messages.create(model="tiny", max_tokens=9, messages=HELLO)
    assert isinstance(stranger.value.body, dict) and stranger.value.body["error"]["type"] == "authentication_error"
    with pytest.raises(anthropic.BadRequestError, match="last message is the assistant's"):
        await claude.messages.create(
            model="tiny", max_tokens=9, messages=[*HELLO, {"role": "assistant", "content": "so"}]
        )
    assert not server.book.turns


async def test_an_engine_that_fails_in_a_stream_ends_it_with_an_error(server: Serving, claude: AsyncAnthropic) -> None:
    server.says("hello there", fails_at=2, problem=EngineError("the engine is gone"))
    with pytest.raises(anthropic.APIStatusError, match="the engine is gone"):
        async with claude.messages.stream(model="tiny", max_tokens=50, messages=HELLO) as stream:
            await stream.get_final_message()
