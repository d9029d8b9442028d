"""Names and ids of a wrong type or size: a 400 that names the place, in the shape of the API that was asked."""

from __future__ import annotations

import aiohttp
import pytest
from serve_doubles import Serving

from openclaw_rl.core.message import Json

KEY = {"Authorization": "Bearer secret"}
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
LONG, LONGER = "x" * 513, "x" * 8193
ASKED: dict[str, dict[str, Json]] = {
    CHAT: {"messages": [{"role": "user", "content": "hello"}]},
    "/v1/completions": {"prompt": "hello"},
    RESPONSES: {"input": "hello"},
    "/v1/responses/input_tokens": {"input": "hello"},
    MESSAGES: {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4},
    "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": "hello"}]},
}
CALL: Json = {"id": LONGER, "type": "function", "function": {"name": "f", "arguments": "{}"}}
WRONG: list[tuple[str, str, Json]] = [
    ("session_id", "session_id", {"a": 1}),
    ("session_id", "session_id", ["a"]),
    ("session_id", "session_id", True),
    ("session_id", "session_id", 1.5),
    ("session_id", "session_id", LONG),
    ("session_id", "session_id", 10**400),
    ("user", "user", {"name": "ann"}),
    ("user", "user", LONG),
    ("prompt_cache_key", "prompt_cache_key", []),
    ("prompt_cache_key", "prompt_cache_key", LONG),
    ("turn_type", "turn_type", 3),
    ("turn_type", "turn_type", LONG),
    ("session_done", "session_done", {"yes": True}),
    ("metadata", "metadata.session_id", {"session_id": {}}),
    ("metadata", "metadata.session_id", {"session_id": LONG}),
    ("metadata", "metadata.user_id", {"user_id": LONG}),
    ("metadata", "metadata", {"note": "x" * 17_000}),
]


async def _asked(
    server: Serving, path: str, body: Json, *, method: str = "POST", headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str]]:
    async with (
        aiohttp.ClientSession(headers={**KEY, **(headers or {})}) as session,
        session.request(method, server.url + path, json=body) as answer,
    ):
        held = await answer.json()
        assert ("type" in held) == path.startswith(MESSAGES), held
        return answer.status, held["error"]


@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize(("name", "where", "value"), WRONG, ids=lambda value: str(value)[:24])
async def test_what_names_a_session_or_a_user_is_a_text_of_a_bounded_length(
    server: Serving, path: str, name: str, where: str, value: Json
) -> None:
    status, problem = await _asked(server, path, {**ASKED[path], name: value})
    assert status == 400 and where in problem["message"], problem
    assert problem.get("param", where) == where
    assert not server.book.arrivals and not server.engine.asked


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
@pytest.mark.parametrize("name", ["X-Session-Id", "Session_id", "X-User-Id", "X-Agent-Id", "X-Turn-Type"])
async def test_so_is_what_a_header_names(server: Serving, path: str, name: str) -> None:
    status, problem = await _asked(server, path, ASKED[path], headers={name: LONG})
    assert status == 400 and name.lower() in problem["message"].lower() and "513" in problem["message"]
    assert not server.book.arrivals


async def test_names_as_long_as_they_may_be_are_taken(server: Serving) -> None:
    server.says("hi")
    body = {**ASKED[CHAT], "session_id": LONG[1:], "user": 7, "session_done": True, "metadata": {"session_id": None}}
    async with (
        aiohttp.ClientSession(headers={**KEY, "X-Session-Id": LONG[1:]}) as session,
        session.post(server.url + CHAT, json=body) as answer,
    ):
        assert answer.status == 200


@pytest.mark.parametrize(
    ("path", "changed", "where"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "x", "name": LONG}]}, "messages[0].name"),
        (CHAT, {"messages": [{"role": "tool", "content": "x", "tool_call_id": LONGER}]}, "messages[0].tool_call_id"),
        (CHAT, {"messages": [{"role": "assistant", "tool_calls": [CALL]}]}, "messages[0].tool_calls[0].id"),
        (CHAT, {"tools": [{"type": "function", "function": {"name": LONG}}]}, "tools[0].function.name"),
        (RESPONSES, {"input": [{"type": "function_call", "call_id": LONGER, "name": "f"}]}, "input[0].call_id"),
        (RESPONSES, {"tools": [{"type": "function", "name": LONG}]}, "tools[0].name"),
        (RESPONSES, {"previous_response_id": LONG}, "previous_response_id"),
        (MESSAGES, {"tools": [{"name": LONG, "input_schema": {}}]}, "tools[0].name"),
        (
            MESSAGES,
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": LONGER}]}]},
            "messages[0].content[0].tool_use_id",
        ),
        ("/v1/feedback", {"score": 1, "session_id": LONG}, "session_id"),
        ("/v1/feedback", {"score": 1, "response_id": LONG}, "response_id"),
        ("/v1/rl/unpin", {"scope": LONG}, "scope"),
    ],
)
async def test_so_are_the_names_of_calls_tools_and_turns(
    server: Serving, path: str, changed: dict[str, Json], where: str
) -> None:
    status, problem = await _asked(server, path, {**ASKED.get(path, {}), **changed})
    assert status == 400 and problem["message"].startswith(where), problem
    assert len(problem["message"]) < 200


async def test_so_are_names_in_a_path_and_a_hint(server: Serving) -> None:
    for method, path, body in (
        ("POST", f"/v1/sessions/{LONG}/done", {}),
        ("GET", f"/v1/responses/{LONG}", None),
        ("PUT", "/v1/rl/hints", {"text": "Be brief.", "user": LONG}),
        ("PUT", "/v1/rl/hints", {"text": "x" * 5000}),
    ):
        status, problem = await _asked(server, path, body, method=method)
        assert status == 400 and "characters" in problem["message"], path
    assert not server.ended


@pytest.mark.parametrize("token", [-1, -(2**63), 2**31, 2**63, 10**30])
async def test_a_number_that_is_no_token_id_is_refused(server: Serving, token: int) -> None:
    status, problem = await _asked(server, "/v1/completions", {"prompt": [5, token]})
    assert status == 400 and problem["param"] == "prompt"
    status, problem = await _asked(server, CHAT, {**ASKED[CHAT], "stop_token_ids": [token]})
    assert status == 400 and problem["param"] == "stop_token_ids"
    assert not server.engine.asked


async def test_what_was_sent_is_shown_in_part_where_it_is_long(server: Serving) -> None:
    status, problem = await _asked(server, CHAT, {**ASKED[CHAT], "model": "x" * 1_000_000})
    assert status == 404 and len(problem["message"]) < 2100
    assert "left out" in problem["message"] and problem["message"].endswith("Ask for tiny or default")


@pytest.mark.parametrize("limit", ["0", "-1", "501", "ten", "9" * 5000, "\u0663"])
async def test_so_is_a_number_in_a_query(server: Serving, limit: str) -> None:
    expected = 200 if limit == "\u0663" else 400  # a three in another script
    async with (
        aiohttp.ClientSession(headers=KEY) as session,
        session.get(server.url + "/v1/rl/turns", params={"limit": limit}) as answer,
    ):
        assert answer.status == expected


@pytest.mark.parametrize("number", [10**18, 10**400, -1, "shared." + "9" * 40])
async def test_a_number_that_no_version_has_is_refused(server: Serving, number: Json) -> None:
    for path, body in (
        ("/v1/rl/rollback", {"version": number}),
        ("/v1/rl/pin", {"version": number}),
        ("/v1/rl/compare", {"versions": [0, number]}),
    ):
        status, problem = await _asked(server, path, body)
        assert status == 400 and problem["param"] == "version", path
