"""Structured output through the command, by the official clients: schemas, tools that must be called, grammars."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path
from typing import Literal

import pytest
from anthropic import AsyncAnthropic
from flow_parts import KEY, Served, start
from openai import AsyncOpenAI, BadRequestError
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from pydantic import BaseModel

from openclaw_rl.store.db import Store

ASKED: list[ChatCompletionMessageParam] = [
    {"role": "user", "content": "Mia has 3 pens and gets 4 more. How many pens does she have?"}
]
PARAMETERS: dict[str, object] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS: list[ChatCompletionToolParam] = [
    {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}},
]


class Answer(BaseModel):
    """What a model says of a sum."""

    kind: Literal["sum", "other"]
    total: int
    is_sure: bool


def _fits(arguments: str) -> bool:
    held = json.loads(arguments)
    return set(held) == {"city", "days"} and 1 <= held["days"] <= 9 and len(held["city"]) <= 12


async def _chat(url: str) -> list[str]:
    """The names of the turns that were held."""
    names: list[str] = []
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        for seed in range(3):
            parsed = await client.chat.completions.parse(
                model="default", messages=ASKED, response_format=Answer, max_tokens=300, seed=seed
            )
            assert isinstance(parsed.choices[0].message.parsed, Answer)
            names.append(parsed.id.removeprefix("chatcmpl-"))
        many = await client.chat.completions.create(
            model="default", messages=ASKED, n=3, max_tokens=300, response_format={"type": "json_object"}, seed=1,
            extra_body={"logit_bias": {"0": -5}, "presence_penalty": 0.5},
        )  # fmt: skip
        whole = [choice for choice in many.choices if choice.finish_reason == "stop"]
        assert all(isinstance(json.loads(choice.message.content or ""), dict) for choice in whole)
        async with client.chat.completions.stream(
            model="default", messages=ASKED, response_format=Answer, max_tokens=300
        ) as stream:
            final = await stream.get_final_completion()
        assert isinstance(final.choices[0].message.parsed, Answer)
        for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
            for is_streamed in (False, True):
                call = await _called(client, choice, is_streamed=is_streamed)
                assert call[0] in ("weather", "clock") if choice == "required" else call[0] == "weather"
                assert call[0] == "clock" or _fits(call[1])
        for extra in (
            {"guided_choice": ["yes", "no"]},
            {"guided_regex": "(yes|no)"},
            {"guided_grammar": 'root ::= "yes" | "no"'},
            {"structured_outputs": {"choice": ["yes", "no"]}},
            {"guided_json": {"enum": ["yes", "no"]}},
        ):
            said = await client.chat.completions.create(
                model="default", messages=ASKED, extra_body=extra, max_tokens=200
            )
            assert (said.choices[0].message.content or "").strip('"') in ("yes", "no")
        bare = await client.completions.create(
            model="default", prompt="The answer is ", extra_body={"guided_regex": "[0-9]{2}"}
        )
        assert bare.choices[0].text.isdigit() and len(bare.choices[0].text) == 2
    return names


async def _called(client: AsyncOpenAI, choice: object, *, is_streamed: bool) -> tuple[str, str]:
    """Name and arguments of the first call."""
    asked = {"model": "default", "messages": ASKED, "tools": TOOLS, "tool_choice": choice, "max_tokens": 400}
    if not is_streamed:
        answer = await client.chat.completions.create(**asked, parallel_tool_calls=False)  # type: ignore[call-overload]
        (call,) = answer.choices[0].message.tool_calls
        return call.function.name, call.function.arguments
    name, arguments = "", ""
    async for chunk in await client.chat.completions.create(**asked, stream=True, parallel_tool_calls=False):  # type: ignore[call-overload]
        for choice_ in chunk.choices:
            for piece in choice_.delta.tool_calls or ():
                name += piece.function.name or ""
                arguments += piece.function.arguments or ""
    return name, arguments


async def _responses(url: str) -> None:
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        parsed = await client.responses.parse(
            model="default", input="3 and 4?", text_format=Answer, max_output_tokens=300
        )
        assert isinstance(parsed.output_parsed, Answer)
        assert parsed.text is not None and parsed.text.format is not None and parsed.text.format.type == "json_schema"
        async with client.responses.stream(
            model="default", input="3 and 4?", text_format=Answer, max_output_tokens=300
        ) as stream:
            final = await stream.get_final_response()
        assert isinstance(final.output_parsed, Answer)
        forced = await client.responses.create(
            model="default",
            input="3 and 4?",
            tools=[{"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": True}],
            tool_choice={"type": "function", "name": "weather"},
            max_output_tokens=400,
        )
        (call,) = [item for item in forced.output if item.type == "function_call"]
        assert call.name == "weather" and _fits(call.arguments)


async def _messages(url: str) -> None:
    async with AsyncAnthropic(base_url=url, api_key=KEY, max_retries=0) as claude:
        tools = [
            {"name": "weather", "description": "The weather.", "input_schema": PARAMETERS},
            {"name": "clock", "input_schema": {"type": "object", "properties": {}}},
        ]
        asked = {"model": "default", "max_tokens": 1600, "messages": [{"role": "user", "content": "3 and 4?"}]}
        for choice in ({"type": "any"}, {"type": "tool", "name": "weather"}):
            answer = await claude.messages.create(**asked, tools=tools, tool_choice=choice)  # type: ignore[call-overload]
            uses = [block for block in answer.content if block.type == "tool_use"]
            assert uses and answer.stop_reason == "tool_use"
            assert all(use.name == "clock" or _fits(json.dumps(use.input)) for use in uses)
        async with claude.messages.stream(**asked, tools=tools, tool_choice=choice) as stream:  # type: ignore[arg-type]
            final = await stream.get_final_message()
        assert [block.name for block in final.content if block.type == "tool_use"] == ["weather"]
        for most in range(4, 60, 8):  # cut in thinking, before the name, or within the arguments
            cut = await claude.messages.create(
                **{**asked, "max_tokens": most}, tools=tools, tool_choice={"type": "tool", "name": "weather"}
            )  # type: ignore[call-overload]
            given = [block.input for block in cut.content if block.type == "tool_use"]
            assert cut.stop_reason in ("max_tokens", "tool_use")
            assert all(set(each) <= {"city", "days"} for each in given)
        schema = Answer.model_json_schema()
        held = await claude.messages.create(
            **asked, extra_body={"output_config": {"format": {"type": "json_schema", "schema": schema}}}
        )  # type: ignore[call-overload]
        (text,) = [block.text for block in held.content if block.type == "text"]
        assert Answer.model_validate_json(text)


async def test_every_api_holds_answers_to_what_its_clients_ask_for(tmp_path: Path, running: list[Served]) -> None:
    running.append(server := start(tmp_path / "home", "--no-learn"))
    names, _, _ = await asyncio.gather(_chat(server.url), _responses(server.url), _messages(server.url))
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        with pytest.raises(BadRequestError, match="not"):
            await client.chat.completions.create(
                model="default", messages=ASKED, extra_body={"guided_json": {"not": {"type": "null"}}}
            )
    assert server.end() == 0
    async with aclosing(await Store.open(tmp_path / "home")) as store:
        turns = [await store.turn(name) for name in names]
    for turn in turns:
        assert turn is not None
        completion = turn.completion
        assert len(completion.forced) == len(completion.tokens) == len(completion.logp_masked)
        assert any(completion.forced) and not all(completion.forced)
        pairs = zip(completion.logp, completion.logp_masked, strict=True)
        assert all(logp <= masked + 1e-4 for logp, masked in pairs)  # masking takes nothing from what is left
