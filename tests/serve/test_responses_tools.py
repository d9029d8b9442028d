"""Custom tools and namespaces of the Responses API, as Codex offers them: called in their own shape."""

from __future__ import annotations

import aiohttp
import pytest
from openai import AsyncOpenAI
from serve_doubles import Serving

from openclaw_rl.core.message import Json, Role
from openclaw_rl.serve.apis.responses.tools import input_of
from openclaw_rl.serve.request.names import flat_name

KEY = {"Authorization": "Bearer secret"}
TARGET: dict[str, Json] = {"type": "object", "properties": {"target": {"type": "string"}}, "required": ["target"]}
CLOSE: dict[str, Json] = {"type": "function", "name": "close_agent", "description": "Ends it.", "parameters": TARGET}
AGENTS: dict[str, Json] = {
    "type": "namespace",
    "name": "multi_agent_v1",
    "description": "Sub-agents.",
    "tools": [CLOSE, {"type": "web_search"}],
}
GRAMMAR: dict[str, Json] = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}
PATCH: dict[str, Json] = {"type": "custom", "name": "apply_patch", "description": "Edits.", "format": GRAMMAR}
TOOLS: list[Json] = [PATCH, AGENTS, {"type": "tool_search"}]
TEXT = '*** Begin Patch\n+ "quoted" ü\n*** End Patch'
CALLS = (
    '<tool_call>\n{"name": "apply_patch", "arguments": {"input": "*** Begin Patch\\n+ \\"quoted\\" ü\\n*** End Patch"}}'
    '\n</tool_call>\n<tool_call>\n{"name": "multi_agent_v1__close_agent", "arguments": {"target": "a1"}}\n</tool_call>'
)


async def _ask(server: Serving, **more: Json) -> tuple[dict[str, Json], str]:
    """The answer and what its header says was ignored."""
    body: dict[str, Json] = {"model": "tiny", "input": "mend it", "tools": TOOLS, **more}
    async with aiohttp.ClientSession(headers=KEY) as http, http.post(f"{server.url}/v1/responses", json=body) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json(), answer.headers.get("x-openclaw-rl-ignored", "")


async def test_custom_tools_and_namespaces_are_functions_to_the_model_and_called_in_their_own_shape(
    server: Serving,
) -> None:
    server.says(CALLS)
    answer, ignored = await _ask(server)
    assert ignored == "tools.custom.format.lark, tools.namespace.web_search, tools.tool_search"
    (turn,) = server.book.turns
    assert [tool.name for tool in turn.tools] == ["apply_patch", "multi_agent_v1__close_agent"]
    schema = turn.tools[0].parameters
    assert schema["required"] == ["input"] and "this lark grammar:" in str(schema["properties"])
    patch, close = answer["output"]
    calls = turn.reply.tool_calls
    assert patch == {
        "id": f"ctc_{turn.id}_0",
        "type": "custom_tool_call",
        "status": "completed",
        "call_id": calls[0].id,
        "name": "apply_patch",
        "input": TEXT,
    }
    assert (close["type"], close["namespace"], close["name"]) == ("function_call", "multi_agent_v1", "close_agent")
    assert (close["id"], close["arguments"]) == (f"fc_{turn.id}_1", '{"target": "a1"}')
    offered = answer["tools"]
    assert [each["type"] for each in offered] == ["custom", "namespace"]
    assert [each["name"] for each in offered[1]["tools"]] == ["close_agent"]


async def test_a_custom_call_is_streamed_in_its_own_events_and_fetched_the_same(
    server: Serving, client: AsyncOpenAI
) -> None:
    server.says(CALLS)
    stream = await client.responses.create(model="tiny", input="mend it", tools=TOOLS, stream=True)  # type: ignore[arg-type]
    events = [event async for event in stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))  # type: ignore[union-attr]
    kinds = [event.type.removeprefix("response.") for event in events]
    at = kinds.index("custom_tool_call_input.delta")
    assert kinds[at - 1 : at + 3] == [
        "output_item.added",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
    ]
    assert events[at].delta == events[at + 1].input == TEXT  # type: ignore[union-attr]
    assert events[at].item_id == events[at + 2].item.id  # type: ignore[union-attr]
    done = events[-1].response  # type: ignore[union-attr]
    assert [item.type for item in done.output] == ["custom_tool_call", "function_call"]
    later = await client.responses.retrieve(done.id)
    assert [item.model_dump() for item in later.output] == [item.model_dump() for item in done.output]


async def test_calls_and_results_come_back_as_the_model_made_them(server: Serving, client: AsyncOpenAI) -> None:
    server.says(CALLS)
    answer, _ = await _ask(server)
    (first,) = server.book.turns
    given: list[Json] = [{"role": "user", "content": "mend it"}, *answer["output"]]
    given += [
        {"type": "custom_tool_call_output", "call_id": first.reply.tool_calls[0].id, "output": "Done"},
        {"type": "function_call_output", "call_id": first.reply.tool_calls[1].id, "output": "Closed"},
    ]
    server.says("Both are done.")
    await _ask(server, input=given)
    messages = server.book.turns[-1].messages
    assert messages[1].tool_calls == first.reply.tool_calls
    assert [(item.role, item.text) for item in messages[2:]] == [(Role.TOOL, "Done"), (Role.TOOL, "Closed")]
    items = await client.responses.input_items.list(f"resp_{server.book.turns[-1].id}", order="asc")
    kinds = [item.type for item in items.data]
    assert kinds == ["message", "custom_tool_call", "function_call", "custom_tool_call_output", "function_call_output"]


TWIN: dict[str, Json] = {**CLOSE, "name": "multi_agent_v1__close_agent"}


@pytest.mark.parametrize("tools", [[TWIN, AGENTS], [AGENTS, TWIN], [{**AGENTS, "tools": [CLOSE, CLOSE]}]])
async def test_two_tools_of_one_name_are_refused(server: Serving, tools: list[Json]) -> None:
    body: dict[str, Json] = {"input": "x", "tools": tools}
    async with aiohttp.ClientSession(headers=KEY) as http, http.post(f"{server.url}/v1/responses", json=body) as answer:
        assert answer.status == 400
        assert "is called multi_agent_v1__close_agent, as another tool is" in await answer.text()


def test_names_are_flat_and_inputs_are_plain() -> None:
    assert flat_name("search", "mcp__docs__") == "mcp__docs__search"
    assert flat_name("search", "docs") == "docs__search" and flat_name("search", None) == "search"
    assert input_of('{"input": "a"}') == input_of('{"patch": "a"}') == "a"
    assert input_of('{"input": 1}') == '{"input": 1}' and input_of("no JSON") == "no JSON"
