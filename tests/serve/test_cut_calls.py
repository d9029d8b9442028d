"""Calls that end at the limit of tokens: what each API gives of them, whole and streamed, and what is recorded."""

from __future__ import annotations

import jiter
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from serve_doubles import Serving

from openclaw_rl.serve.apis.messages.chunks import written_input

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
HEAD = 'I write.\n<tool_call>\n{"name": "write", "arguments": '
WHOLE = '{"path": "a\\"} ü", "lines": [1, -2.5e3, {"x": [true, null, "}, ["]}], "n": 12, "last": false}'
CUTS = (1, 3, 9, 15, 16, 21, 31, 37, 47, 60, 70, 86, len(WHOLE))


def test_what_of_an_input_is_whole_is_what_clients_make_of_its_fragments() -> None:
    for size in range(1, len(WHOLE) + 1):
        cut = WHOLE[:size]
        assert written_input(cut) == jiter.from_json(cut.encode(), partial_mode=True), cut
    assert written_input("") == written_input('{"a": }') == written_input("[1, 2") == {}
    assert written_input('{"a": ' + "[" * 50_000) == {}


@pytest.mark.parametrize("size", CUTS)
async def test_messages_give_a_cut_call_with_what_is_whole_of_its_input(
    server: Serving, claude: AsyncAnthropic, size: int
) -> None:
    asked = {
        "model": "default", "max_tokens": 900, "messages": [{"role": "user", "content": "hello"}],
        "tools": [{"name": "write", "input_schema": SCHEMA}],
    }  # fmt: skip
    ids = server.says(HEAD + WHOLE[:size], ends=False)
    whole = await claude.messages.create(**asked)  # type: ignore[call-overload]
    server.says(HEAD + WHOLE[:size], ends=False)
    async with claude.messages.stream(**asked) as stream:  # type: ignore[arg-type]
        streamed = await stream.get_final_message()
    for answer in (whole, streamed):
        assert answer.stop_reason == "max_tokens"
        text, call = answer.content
        assert (text.type, call.type, call.name) == ("text", "tool_use", "write")
        assert call.input == jiter.from_json(WHOLE[:size].encode(), partial_mode=True)
    assert [turn.completion.tokens for turn in server.book.turns] == [ids, ids]
    assert all(turn.reply.tool_calls[0].arguments == WHOLE[:size] for turn in server.book.turns)


async def test_messages_give_a_call_that_was_cut_before_its_name_as_text(
    server: Serving, claude: AsyncAnthropic
) -> None:
    begun = '<tool_call>\n{"name": "wri'
    asked = {"model": "default", "max_tokens": 900, "messages": [{"role": "user", "content": "hello"}]}
    server.says(begun, ends=False)
    whole = await claude.messages.create(**asked)  # type: ignore[call-overload]
    server.says(begun, ends=False)
    async with claude.messages.stream(**asked) as stream:  # type: ignore[arg-type]
        streamed = await stream.get_final_message()
    for answer in (whole, streamed):
        assert answer.stop_reason == "max_tokens"
        assert [block.type for block in answer.content] == ["text"]


@pytest.mark.parametrize("size", CUTS)
async def test_chat_gives_a_cut_call_with_its_arguments_as_they_are(
    server: Serving, client: AsyncOpenAI, size: int
) -> None:
    asked = {
        "model": "default", "messages": [{"role": "user", "content": "hello"}],
        "tools": [{"type": "function", "function": {"name": "write", "parameters": SCHEMA}}],
    }  # fmt: skip
    ids = server.says(HEAD + WHOLE[:size], ends=False)
    whole = (await client.chat.completions.create(**asked)).choices[0]  # type: ignore[call-overload]
    assert whole.finish_reason == "length"
    assert [call.function.arguments for call in whole.message.tool_calls] == [WHOLE[:size]]
    server.says(HEAD + WHOLE[:size], ends=False)
    arguments, reasons = "", set[str]()
    async for chunk in await client.chat.completions.create(**asked, stream=True):  # type: ignore[call-overload]
        for choice in chunk.choices:
            reasons |= {choice.finish_reason} - {None}
            arguments += "".join(piece.function.arguments or "" for piece in choice.delta.tool_calls or ())
    assert (arguments, reasons) == (WHOLE[:size], {"length"})
    assert [turn.completion.tokens for turn in server.book.turns] == [ids, ids]


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("kind", ["function", "custom"])
async def test_responses_mark_a_cut_call_as_incomplete(
    server: Serving, client: AsyncOpenAI, kind: str, size: int
) -> None:
    tool = {"type": kind, "name": "write"} | ({"parameters": SCHEMA} if kind == "function" else {})
    asked = {"model": "default", "input": "hello", "tools": [tool]}
    ids = server.says(HEAD + WHOLE[:size], ends=False)
    whole = await client.responses.create(**asked)  # type: ignore[call-overload]
    server.says(HEAD + WHOLE[:size], ends=False)
    async with client.responses.stream(**asked) as stream:  # type: ignore[call-overload]
        async for event in stream:
            if event.type == "response.incomplete":
                streamed = event.response
    fetched = await client.responses.retrieve(whole.id)
    for answer in (whole, streamed, fetched):
        assert answer.status == "incomplete" and answer.incomplete_details.reason == "max_output_tokens"
        text, call = answer.output
        assert (text.status, call.status) == ("completed", "incomplete")
        assert (call.arguments if kind == "function" else call.input) == WHOLE[:size]
    assert [turn.completion.tokens for turn in server.book.turns] == [ids, ids]


async def test_text_that_was_cut_behind_a_whole_call_is_what_is_incomplete(
    server: Serving, client: AsyncOpenAI
) -> None:
    asked = {"model": "default", "input": "hello", "tools": [{"type": "function", "name": "write"}]}
    server.says(f"{HEAD}{WHOLE}}}\n</tool_call>\nand then", ends=False)
    whole = await client.responses.create(**asked)  # type: ignore[call-overload]
    fetched = await client.responses.retrieve(whole.id)
    for answer in (whole, fetched):
        assert [(item.type, item.status) for item in answer.output] == [
            ("message", "incomplete"),
            ("function_call", "completed"),
        ]
