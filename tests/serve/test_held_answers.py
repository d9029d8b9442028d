"""What a request holds its answer to: read from every API's own parameters, and from vLLM's in any of them."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from openai import AsyncOpenAI
from serve_doubles import Serving, serving

from openclaw_rl.core.message import Json
from openclaw_rl.core.sampling import Grammar, LogitAdjustment
from openclaw_rl.errors import RequestError
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.store.db import Store

KEY = {"Authorization": "Bearer secret", "anthropic-version": "2023-06-01"}
SCHEMA: dict[str, Json] = {"type": "object", "properties": {"a": {"type": "integer"}}}
READ: dict[str, Json] = {"name": "read", "description": "Reads.", "parameters": SCHEMA}
FUNCTION: dict[str, Json] = {"type": "function", "function": READ}
CHAT: dict[str, Json] = {"messages": [{"role": "user", "content": "hello"}]}
PATHS: dict[str, dict[str, Json]] = {
    "chat/completions": CHAT,
    "completions": {"prompt": "hello"},
    "responses": {"input": "hello"},
    "messages": {**CHAT, "max_tokens": 50},
}


async def _grammars(
    renderer: ChatRenderer, folder: Path, path: str, body: dict[str, Json]
) -> tuple[int, dict[str, Json], list[Grammar], Serving]:
    """The answer's status and body, the grammars that were checked, and the server, whose engine was asked."""
    checked: list[Grammar] = []

    async def check(grammar: Grammar) -> None:
        if "refuse me" in grammar.text:
            raise RequestError("the library does not take it", code="unsupported_format")
        checked.append(grammar)

    async with (
        aclosing(await Store.open(folder)) as store,
        serving(renderer, store, change=lambda parts: replace(parts, check_grammar=check)) as server,
    ):
        server.says("x")
        async with (
            aiohttp.ClientSession(headers=KEY) as http,
            http.post(f"{server.url}/v1/{path}", json={**PATHS[path], **body}) as answer,
        ):
            return answer.status, await answer.json(), checked, server


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"guided_json": SCHEMA}, '"integer"'),
        ({"guided_json": '{"type": "integer"}'}, '"integer"'),
        ({"guided_json": {}}, "%json"),
        ({"guided_regex": "[0-9]+/x"}, "/[0-9]+\\/x/"),
        ({"guided_choice": ["yes", "no"]}, '("yes" | "no")'),
        ({"guided_grammar": "start: /a+/"}, "start: /a+/"),
        ({"structured_outputs": {"json": SCHEMA, "regex": None}}, '"integer"'),
        ({"structured_outputs": {"regex": "a+"}}, "/a+/"),
        ({"structured_outputs": {"choice": ["yes"]}}, '"yes"'),
        ({"structured_outputs": {"grammar": 'root ::= "a"'}}, "gbnf"),
        ({"structured_outputs": {"json_object": True, "disable_any_whitespace": True}}, '"whitespace_flexible": false'),
        ({"guided_json": SCHEMA, "guided_whitespace_pattern": "[ ]?"}, "[ ]?"),
    ],
    ids=str,
)
async def test_every_api_takes_what_engines_call_structured_outputs(
    renderer: ChatRenderer, tmp_path: Path, path: str, body: dict[str, Json], word: str
) -> None:
    status, told, checked, server = await _grammars(renderer, tmp_path, path, body)
    assert status == 200, told
    held = server.engine.asked[0].sampling.grammar
    assert held is not None and held in checked
    assert word in held.text.replace("\\\\", "\\")
    assert held.ends == server.parts.eos_ids


@pytest.mark.parametrize("path", PATHS)
async def test_every_api_takes_biases_and_penalties(renderer: ChatRenderer, tmp_path: Path, path: str) -> None:
    body: dict[str, Json] = {"logit_bias": {"5": 3.5}, "presence_penalty": 1, "frequency_penalty": -1}
    status, told, _, server = await _grammars(renderer, tmp_path, path, {**body, "repetition_penalty": 1.5})
    assert status == 200, told
    assert server.engine.asked[0].sampling.leaning == LogitAdjustment(((5, 3.5),), 1.0, -1.0, 1.5)


@pytest.mark.parametrize("stop", ["EN", ["never", "EN"]], ids=str)
@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("path", PATHS)
async def test_every_api_takes_stop_texts(server: Serving, path: str, is_streamed: bool, stop: Json) -> None:
    ids = server.says("weEND and more")
    body = {**PATHS[path], "stop": stop, "stream": is_streamed}
    async with (
        aiohttp.ClientSession(headers=KEY) as http,
        http.post(f"{server.url}/v1/{path}", json=body) as answer,
    ):
        told = await answer.text()
    assert answer.status == 200 and "END" not in told and "more" not in told
    assert "x-openclaw-rl-ignored" not in answer.headers
    turn = server.book.turns[0]
    assert turn.reply.text == "we"
    assert turn.completion.tokens == ids[: len(turn.completion.tokens)]


FORMAT: dict[str, Json] = {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}
ANTHROPIC = {"name": "read", "input_schema": SCHEMA}
RESPONSES = {"type": "function", **READ}


@pytest.mark.parametrize(
    ("path", "body", "word"),
    [
        ("chat/completions", {"response_format": {"type": "json_object"}}, '"object"'),
        ("chat/completions", {"response_format": {"type": "json_schema", "json_schema": FORMAT}}, '"integer"'),
        ("completions", {"response_format": {"type": "json_schema", "json_schema": FORMAT}}, '"integer"'),
        ("responses", {"text": {"format": FORMAT}}, '"integer"'),
        ("responses", {"text": {"format": {"type": "json_object"}}}, '"object"'),
        ("messages", {"output_config": {"format": FORMAT}}, '"integer"'),
        ("messages", {"output_format": FORMAT}, '"integer"'),
        ("chat/completions", {"tools": [FUNCTION], "tool_choice": "required"}, '"read"'),
        (
            "chat/completions",
            {"tools": [FUNCTION], "tool_choice": {"type": "function", "function": {"name": "read"}}},
            '"read"',
        ),
        ("responses", {"tools": [RESPONSES], "tool_choice": "required"}, '"read"'),
        ("responses", {"tools": [RESPONSES], "tool_choice": {"type": "function", "name": "read"}}, '"read"'),
        ("messages", {"tools": [ANTHROPIC], "tool_choice": {"type": "any"}}, '"read"'),
        ("messages", {"tools": [ANTHROPIC], "tool_choice": {"type": "tool", "name": "read"}}, '"read"'),
        ("chat/completions", {"tools": [{"type": "function", "function": {**READ, "strict": True}}]}, '"integer"'),
        ("responses", {"tools": [{**RESPONSES, "strict": True}]}, '"integer"'),
        ("messages", {"tools": [{**ANTHROPIC, "strict": True}]}, '"integer"'),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_each_api_holds_answers_in_its_own_words(
    renderer: ChatRenderer, tmp_path: Path, path: str, body: dict[str, Json], word: str
) -> None:
    status, told, _, server = await _grammars(renderer, tmp_path, path, body)
    assert status == 200, told
    held = server.engine.asked[0].sampling.grammar
    assert held is not None and word in held.text.replace('\\"', '"')
    if path == "responses" and "text" in body:
        assert told["text"] == body["text"]


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("chat/completions", {"guided_json": SCHEMA, "guided_regex": "a"}, ("guided_regex", "several constraints")),
        (
            "chat/completions",
            {"response_format": {"type": "json_object"}, "guided_json": {}},
            ("guided_json", "several"),
        ),
        ("chat/completions", {"response_format": {"type": "yaml"}}, ("response_format", "yaml")),
        (
            "chat/completions",
            {"response_format": {"type": "json_schema", "json_schema": 3}},
            ("response_format", "object"),
        ),
        ("chat/completions", {"guided_json": "{"}, ("guided_json", "not valid JSON")),
        ("chat/completions", {"guided_json": [1]}, ("guided_json", "not a JSON schema")),
        ("chat/completions", {"guided_choice": []}, ("guided_choice", "list of strings")),
        ("chat/completions", {"guided_grammar": " "}, ("guided_grammar", "empty")),
        ("chat/completions", {"structured_outputs": {"structural_tag": "x"}}, ("structured_outputs", "structural_tag")),
        (
            "chat/completions",
            {"structured_outputs": {"regex": "a", "json": {}}},
            ("structured_outputs", "json and regex"),
        ),
        ("chat/completions", {"guided_json": {"const": "refuse me"}}, ("guided_json", "does not take it")),
        (
            "responses",
            {"text": {"format": {"type": "json_schema", "schema": {"const": "refuse me"}}}},
            ("text.format", "not take"),
        ),
        (
            "chat/completions",
            {"tools": [FUNCTION], "tool_choice": {"type": "function", "function": {"name": "fly"}}},
            ("tool_choice", "fly"),
        ),
        ("chat/completions", {"tools": [FUNCTION], "tool_choice": "sometimes"}, ("tool_choice", "sometimes")),
        ("chat/completions", {"logit_bias": {"5": 200}}, ("logit_bias", "-100 to 100")),
    ],
    ids=lambda value: str(value)[:50],
)
async def test_what_cannot_be_held_is_refused_before_anything_is_placed(
    renderer: ChatRenderer, tmp_path: Path, path: str, body: dict[str, Json], told: tuple[str, str]
) -> None:
    status, answer, _, server = await _grammars(renderer, tmp_path, path, body)
    error = answer["error"]
    assert isinstance(error, dict)
    assert (status, error["param"]) == (400, told[0]), error
    assert told[1] in str(error["message"])
    assert not server.engine.asked and not server.book.arrivals


async def test_top_p_nought_is_taken(server: Serving, client: AsyncOpenAI) -> None:
    server.says("x")
    await client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "x"}], top_p=0)
    assert server.engine.asked[0].sampling.top_p == 0.0


async def test_allowed_tools_are_those_the_model_is_told_of(renderer: ChatRenderer, tmp_path: Path) -> None:
    write: dict[str, Json] = {"type": "function", "function": {**READ, "name": "write"}}
    named: list[Json] = [{"type": "function", "function": {"name": "read"}}]
    choice: Json = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": named}}
    _, _, checked, server = await _grammars(
        renderer, tmp_path, "chat/completions", {"tools": [FUNCTION, write], "tool_choice": choice}
    )
    assert [tool.name for tool in server.book.turns[0].tools] == ["read"]
    assert not checked and server.engine.asked[0].sampling.grammar is None


async def test_an_engine_that_holds_nothing_passes_over_strict_tools_alone(server: Serving) -> None:
    server.says("x")
    strict = {"type": "function", "function": {**READ, "strict": True}}
    async with (
        aiohttp.ClientSession(headers=KEY) as http,
        http.post(f"{server.url}/v1/chat/completions", json={**CHAT, "tools": [strict]}) as answer,
    ):
        assert answer.status == 200
    assert server.engine.asked[0].sampling.grammar is None
