"""A field without effect is named in a header of the answer, and thinking works as far as the template knows it."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import replace

import aiohttp
import msgspec
import pytest
import typing_extensions
from anthropic.types import beta
from openai.types import responses
from serve_doubles import Serving, serving

from openclaw_rl.render.passes import names_read
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.render.template import compile_template
from openclaw_rl.serve.answers import note_headers
from openclaw_rl.serve.apis.messages.tools import ToolParam, tools_of
from openclaw_rl.store.db import Store

KEY = {"Authorization": "Bearer secret"}
HELLO = [{"role": "user", "content": "hello"}]
SCHEMA = {"type": "object"}
CHAT, MESSAGES, RESPONSES, TEXT = "/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/completions"
WHOLE: dict[str, dict[str, object]] = {
    CHAT: {"messages": HELLO},
    MESSAGES: {"messages": HELLO, "max_tokens": 50},
    RESPONSES: {"input": "hello"},
    TEXT: {"prompt": "hello"},
}


async def _ask(server: Serving, path: str, body: Mapping[str, object], *, stream: bool = False) -> str | None:
    """The header that names what had no effect."""
    server.says("x")
    said = {**WHOLE[path], **body, **({"stream": True} if stream else {})}
    async with aiohttp.ClientSession(headers=KEY) as http, http.post(server.url + path, json=said) as answer:
        assert answer.status == 200, await answer.text()
        await answer.read()
        return answer.headers.get("x-openclaw-rl-ignored")


SEARCH_THERE: dict[str, object] = {"type": "web_search_20250305", "name": "web_search"}
Case = tuple[str, dict[str, object], str | None]
UNKNOWN: dict[str, object] = {"sparkle": None, "glitter": False, "seed": None}
CASES: list[Case] = [
    (CHAT, {}, None),
    (CHAT, {"temperature": 0.5, "user": "u", "metadata": {"a": "b"}, "presence_penalty": 0}, None),
    (CHAT, {"store": True, "sparkle": 1, "service_tier": "auto"}, "store, sparkle, service_tier"),
    (CHAT, {"web_search_options": {}}, "web_search_options"),
    (CHAT, {"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools.custom"),
    (
        CHAT,
        {
            "tools": [{"type": "custom", "custom": {"name": "x"}}],
            "tool_choice": {"type": "custom", "custom": {"name": "x"}},
        },
        "tools.custom, tool_choice",
    ),
    (
        CHAT,
        {"tools": [{"type": "custom", "custom": {"name": "x"}}], "tool_choice": "required"},
        "tools.custom, tool_choice",
    ),
    (CHAT, {"tools": [{"type": "function", "function": {"name": "x", "strict": True}}]}, "tools.strict"),
    (MESSAGES, {"service_tier": "auto", "mcp_servers": [{"type": "url"}]}, "service_tier, mcp_servers"),
    (
        MESSAGES,
        {"container": "c", "system": [{"type": "text", "text": "s", "cache_control": {}}]},
        "container, cache_control",
    ),
    (MESSAGES, {"thinking": {"type": "enabled", "budget_tokens": 99}}, "thinking.budget_tokens"),
    (MESSAGES, {"output_config": {"effort": "high"}}, "output_config.effort"),
    (MESSAGES, {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools.web_search_20250305"),
    (MESSAGES, {"tools": [{"type": "mcp_toolset", "mcp_server_name": "m"}]}, "tools.mcp_toolset"),
    (
        MESSAGES,
        {"tools": [SEARCH_THERE], "tool_choice": {"type": "tool", "name": "web_search"}},
        "tools.web_search_20250305, tool_choice",
    ),
    (MESSAGES, {"tools": [SEARCH_THERE], "tool_choice": {"type": "any"}}, "tools.web_search_20250305, tool_choice"),
    (MESSAGES, {"seed": 3, "min_p": 0.1, "stop_token_ids": [1]}, None),
    (RESPONSES, {"tools": [{"type": "mcp"}], "tool_choice": "required"}, "tools.mcp, tool_choice"),
    (
        RESPONSES,
        {"tools": [{"type": "web_search_preview_2025_03_11"}], "tool_choice": {"type": "web_search_preview"}},
        "tools.web_search_preview_2025_03_11, tool_choice",
    ),
    (RESPONSES, {"truncation": "auto", "text": {"verbosity": "low"}}, "truncation, text.verbosity"),
    (RESPONSES, {"tools": [{"type": "web_search"}, {"type": "sorcery"}]}, "tools.sorcery, tools.web_search"),
    (RESPONSES, {"reasoning": {"effort": "high"}}, "reasoning.effort"),
    (TEXT, {"sparkle": 1}, "sparkle"),
    *((path, UNKNOWN, "glitter") for path in WHOLE),
]


@pytest.mark.parametrize(("path", "body", "told"), CASES, ids=lambda value: str(value)[:60])
async def test_a_field_without_effect_is_named(
    server: Serving, path: str, body: Mapping[str, object], told: str | None
) -> None:
    assert await _ask(server, path, body) == told
    assert await _ask(server, path, body, stream=True) == told


def test_names_are_bounded_and_cannot_write_headers() -> None:
    told = note_headers([*(f"a{number}" for number in range(40)), "a1"], {})["x-openclaw-rl-ignored"]
    assert told.startswith("a0, a1, ") and told.endswith("a31, and 8 more")
    assert note_headers(["ü\r\nx: y", "n" * 99], {}) == {"x-openclaw-rl-ignored": f"_x_y, {'n' * 64}"}
    assert note_headers([], {}) == {}


THINKING: list[tuple[dict[str, object], dict[str, object], str | None]] = [
    ({"enable_thinking": True}, {"enable_thinking": True}, None),
    ({"enable_thinking": False}, {"enable_thinking": False}, None),
    ({"thinking": {"type": "enabled"}}, {"enable_thinking": True}, None),
    ({"thinking": {"type": "disabled"}}, {"enable_thinking": False}, None),
    ({"thinking": True}, {"enable_thinking": True}, None),
    ({"thinking": {"type": "enabled", "budget_tokens": 9}}, {"enable_thinking": True}, "thinking.budget_tokens"),
    ({"reasoning": {"enabled": True}}, {"enable_thinking": True}, None),
    ({"reasoning": {"effort": "none"}}, {"enable_thinking": False}, None),
    ({"reasoning": {"effort": "high", "exclude": True}}, {}, "reasoning.exclude, reasoning.effort"),
    ({"reasoning": "high", "thinking": 3, "enable_thinking": "yes"}, {}, "enable_thinking, thinking, reasoning"),
    ({"thinking": {"type": "adaptive"}}, {}, None),
    ({"thinking": {"type": "sometimes"}}, {}, "thinking.type"),
    ({"reasoning_effort": "none"}, {"enable_thinking": False}, None),
    ({"reasoning_effort": "low"}, {}, "reasoning_effort"),
    ({"chat_template_kwargs": {"enable_thinking": True, "x": 1}}, {"enable_thinking": True}, "chat_template_kwargs.x"),
    (
        {"chat_template_kwargs": {"enable_thinking": True}, "reasoning_effort": "none"},
        {"enable_thinking": True},  # the template's own arguments go first
        None,
    ),
]


@pytest.mark.parametrize(("body", "options", "told"), THINKING, ids=str)
async def test_thinking_works_by_any_name_that_the_template_can_serve(
    server: Serving, body: Mapping[str, object], options: Mapping[str, object], told: str | None
) -> None:
    assert await _ask(server, CHAT, body) == told
    assert server.book.turns[-1].options == options


async def test_thinking_in_a_chat_history_is_read_under_both_of_its_names(server: Serving) -> None:
    for name in ("reasoning_content", "reasoning"):
        said = [*HELLO, {"role": "assistant", "content": "hi", name: "so"}, *HELLO]
        await _ask(server, CHAT, {"messages": said})
        assert server.book.turns[-1].messages[1].reasoning == "so"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "thinking", "thinking": "so"},
        {"type": "thinking", "thinking": [{"type": "text", "text": "so"}]},
        {"type": "reasoning", "text": "so"},
    ],
)
async def test_thinking_among_the_parts_of_a_reply_is_its_thinking(server: Serving, part: dict[str, object]) -> None:
    said = {"role": "assistant", "content": [part, {"type": "text", "text": "hi"}]}
    await _ask(server, CHAT, {"messages": [*HELLO, said, *HELLO]})
    reply = server.book.turns[-1].messages[1]
    assert (reply.reasoning, reply.text) == ("so", "hi")


def test_a_template_says_which_names_it_reads() -> None:
    source = (
        "{% for m in messages %}{{ m.content }}{% if thinking %}{% set low = reasoning_effort %}{% endif %}{% endfor %}"
    )
    assert names_read(compile_template(source)) >= {"messages", "thinking", "reasoning_effort"}
    assert not names_read(compile_template(source)) & {"enable_thinking", "m", "content"}


async def test_tools_that_a_client_runs_by_an_agreed_schema_are_told_of(renderer: ChatRenderer, store: Store) -> None:
    kinds = {
        "bash_20250124": "bash",
        "text_editor_20250124": "str_replace_editor",
        "text_editor_20250728": "str_replace_based_edit_tool",
        "computer_20250124": "computer",
        "memory_20250818": "memory",
    }
    tools: list[dict[str, object]] = [{"type": kind, "name": name} for kind, name in kinds.items()]
    tools[3] |= {"display_width_px": 800, "display_height_px": 600}
    tools.append({"type": "web_fetch_20250910", "name": "web_fetch"})
    async with serving(renderer, store, change=lambda parts: replace(parts, context_length=16384)) as server:
        assert await _ask(server, MESSAGES, {"tools": tools}) == "tools.web_fetch_20250910"
        told = {tool.name: tool for tool in server.book.turns[-1].tools}
    assert list(told) == list(kinds.values())
    assert told["bash"].parameters["properties"].keys() == {"command", "restart"}  # type: ignore[union-attr]
    assert "undo_edit" in str(told["str_replace_editor"].parameters)
    assert "undo_edit" not in str(told["str_replace_based_edit_tool"].parameters)
    assert "800 by 600" in told["computer"].description


def _kinds(union: object) -> set[str]:
    """The kinds of the tools that an official client knows."""
    kinds = [
        typing_extensions.get_type_hints(tool).get("type")
        for tool in typing.get_args(union)
        if typing_extensions.is_typeddict(tool)
    ]
    return {name for kind in kinds for name in typing.get_args(kind) if isinstance(name, str)}


async def test_no_tool_that_the_official_clients_know_costs_the_request(renderer: ChatRenderer, store: Store) -> None:
    whole = {"name": "x", "display_width_px": 800, "display_height_px": 600, "parameters": SCHEMA, "tools": []}
    asked = [(MESSAGES, kind) for kind in sorted(_kinds(beta.BetaToolUnionParam))]
    asked += [(RESPONSES, kind) for kind in sorted(_kinds(responses.ToolParam))]
    assert len(asked) > 30
    async with serving(renderer, store, change=lambda parts: replace(parts, context_length=16384)) as server:
        for path, kind in [*asked, (CHAT, "not_known_yet"), (MESSAGES, "not_known_yet"), (RESPONSES, "not_known_yet")]:
            told = await _ask(server, path, {"tools": [{"type": kind, **whole}]})
            assert (told is None) == bool(server.book.turns[-1].tools) or kind == "namespace", kind
            assert told in (None, f"tools.{kind}"), kind


def test_a_dated_tool_with_a_schema_of_its_own_is_a_plain_one() -> None:
    tool = ToolParam("bash", "bash_20250124", input_schema=msgspec.Raw(b'{"type": "object", "title": "mine"}'))
    assert tools_of([tool])[0].parameters == {"type": "object", "title": "mine"}
