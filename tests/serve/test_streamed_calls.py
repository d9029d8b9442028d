"""Streamed tool calls have the form that each API's own servers give them, entry by entry."""

from __future__ import annotations

import json
from collections.abc import Mapping

import aiohttp
import pytest
from serve_doubles import Serving

KEY = {"Authorization": "Bearer secret"}
HELLO = [{"role": "user", "content": "hello"}]
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
CALLS = (
    "I read.\n"
    '<tool_call>\n{"name": "read", "arguments": {"path": "a ü"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "write", "arguments": {"path": "b"}}\n</tool_call>'
)
WANTED = [("read", {"path": "a ü"}), ("write", {"path": "b"})]


async def _events(server: Serving, path: str, body: Mapping[str, object]) -> list[dict[str, object]]:
    """The data of a stream's events, but for the mark of the end."""
    async with aiohttp.ClientSession(headers=KEY) as http, http.post(server.url + path, json=body) as answer:
        assert answer.status == 200, await answer.text()
        lines = (await answer.text()).splitlines()
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    return [json.loads(line) for line in data if line != "[DONE]"]


@pytest.mark.parametrize("more", [{}, {"logprobs": True}])
async def test_a_chat_event_holds_one_entry_of_one_call(server: Serving, more: Mapping[str, object]) -> None:
    server.says(CALLS)
    tools = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name, _ in WANTED]
    body = {"messages": HELLO, "tools": tools, "stream": True, **more}
    held: dict[int, dict[str, str]] = {}
    for event in await _events(server, "/v1/chat/completions", body):
        delta = event["choices"][0]["delta"]  # type: ignore[index]
        entries = delta.get("tool_calls") or []
        assert len(entries) <= 1
        for entry in entries:
            if "id" in entry:
                assert entry["index"] not in held and set(entry) == {"index", "id", "type", "function"}
                assert entry["type"] == "function" and entry["function"] == {**entry["function"], "arguments": ""}
                held[entry["index"]] = {"name": entry["function"]["name"], "arguments": ""}
            else:
                assert set(entry) == {"index", "function"} and set(entry["function"]) == {"arguments"}
                held[entry["index"]]["arguments"] += entry["function"]["arguments"]
    assert [(call["name"], json.loads(call["arguments"])) for call in held.values()] == WANTED


async def test_a_messages_stream_opens_each_call_before_its_arguments(server: Serving) -> None:
    server.says(CALLS)
    tools = [{"name": name, "input_schema": SCHEMA} for name, _ in WANTED]
    held: dict[object, tuple[str, str]] = {}
    body = {"messages": HELLO, "tools": tools, "stream": True, "max_tokens": 200}
    for event in await _events(server, "/v1/messages", body):
        block, delta = event.get("content_block", {}), event.get("delta", {})
        if block and block["type"] == "tool_use":  # type: ignore[index]
            assert block["input"] == {} and event["index"] not in held  # type: ignore[index]
            held[event["index"]] = (block["name"], "")  # type: ignore[index]
        elif delta and delta.get("type") == "input_json_delta":  # type: ignore[attr-defined]
            name, text = held[event["index"]]
            held[event["index"]] = (name, text + delta["partial_json"])  # type: ignore[index]
    assert [(name, json.loads(text)) for name, text in held.values()] == WANTED


async def test_a_responses_stream_adds_each_call_before_its_arguments(server: Serving) -> None:
    server.says(CALLS)
    tools = [{"type": "function", "name": name, "parameters": SCHEMA} for name, _ in WANTED]
    held: dict[object, tuple[str, str]] = {}
    for event in await _events(server, "/v1/responses", {"input": "hello", "tools": tools, "stream": True}):
        if event["type"] == "response.output_item.added" and event["item"]["type"] == "function_call":  # type: ignore[index]
            assert event["item"]["arguments"] == ""  # type: ignore[index]
            held[event["output_index"]] = (event["item"]["name"], "")  # type: ignore[index]
        elif event["type"] == "response.function_call_arguments.delta":
            name, text = held[event["output_index"]]
            held[event["output_index"]] = (name, text + str(event["delta"]))
    assert [(name, json.loads(text)) for name, text in held.values()] == WANTED
