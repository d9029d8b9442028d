"""What each key may do, how much of it, and what is answered where it may not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import aiohttp
import pytest
from serve_doubles import Serving, serving

from openclaw_rl.core.rights import ALL_RIGHTS, KnownKey, Limits, Right
from openclaw_rl.render.renderer import ChatRenderer
from openclaw_rl.serve.app import ROUTES
from openclaw_rl.serve.door.auth import Keys, key_digest
from openclaw_rl.serve.door.limits import Meter
from openclaw_rl.serve.parts import ServeParts
from openclaw_rl.serve.settings import ServeSettings
from openclaw_rl.store.db import Store
from openclaw_rl.testing.clock import Clock

CHAT = {"messages": [{"role": "user", "content": "hello"}]}
BOB = KnownKey("bob", key_digest("bobs"), frozenset({Right.CHAT}))


@pytest.fixture
async def guarded(
    renderer: ChatRenderer, store: Store
) -> AsyncIterator[tuple[Serving, list[KnownKey], list[str], Clock]]:
    others, used, clock = [BOB], list[str](), Clock(0.0)

    def change(parts: ServeParts) -> ServeParts:
        keys = Keys({"alice": "secret"}, lambda: others, used.append)
        return replace(parts, keys=keys, meter=Meter(feedback_a_minute=2, clock=clock))

    async with serving(renderer, store, change=change) as server:
        yield server, others, used, clock


def test_every_route_but_those_that_anybody_may_ask_needs_the_right_it_is_for() -> None:
    needed = {(method, path): right for method, path, _, right in ROUTES if right is not None}
    admin = {path for (_, path), right in needed.items() if right is Right.ADMIN}
    assert admin == {path for _, path in needed if path.startswith("/v1/rl/")} - {"/v1/rl/session_done"}
    assert needed["POST", "/v1/feedback"] is Right.FEEDBACK
    assert needed["POST", "/v1/chat/completions"] is needed["POST", "/v1/sessions/{id}/done"] is Right.CHAT


async def test_a_key_is_answered_only_where_it_has_the_right(
    guarded: tuple[Serving, list[KnownKey], list[str], Clock],
) -> None:
    server, others, used, _ = guarded
    async with aiohttp.ClientSession(server.url, headers={"x-api-key": "bobs"}) as http:
        server.says("fine")
        async with http.post("/v1/chat/completions", json=CHAT) as answer:
            assert answer.status == 200
        async with http.post("/v1/feedback", json={"session_id": "s", "score": 1}) as answer:
            body = await answer.json()
            assert (answer.status, body["error"]["type"]) == (403, "permission_error")
            assert "may not give feedback" in body["error"]["message"]
        for path in ("/v1/rl/turns", "/v1/rl/versions", "/v1/rl/status", "/v1/rl/hints"):
            async with http.get(path) as answer:
                assert answer.status == 403
        others[0] = replace(BOB, revoked_s=1.0)
        async with http.post("/v1/chat/completions", json=CHAT) as answer:
            assert answer.status == 401 and "revoked" in (await answer.json())["error"]["message"]
    assert set(used) == {"bob"}


async def test_a_refusal_has_the_shape_of_the_api_that_was_asked(
    guarded: tuple[Serving, list[KnownKey], list[str], Clock],
) -> None:
    server, others, _, _ = guarded
    others[0] = replace(BOB, rights=frozenset({Right.FEEDBACK}))
    async with aiohttp.ClientSession(server.url, headers={"x-api-key": "bobs"}) as http:
        async with http.post("/v1/messages", json={**CHAT, "max_tokens": 5}) as answer:
            body = await answer.json()
        assert (answer.status, body["type"], body["error"]["type"]) == (403, "error", "permission_error")


async def test_too_many_requests_are_told_when_to_come_again(
    guarded: tuple[Serving, list[KnownKey], list[str], Clock],
) -> None:
    # 2 a minute: the third at once waits the 30 s in which one comes back, and is answered then
    server, others, _, clock = guarded
    others[0] = replace(BOB, limits=Limits(requests_a_minute=2))
    async with aiohttp.ClientSession(server.url, headers={"x-api-key": "bobs"}) as http:
        for _ in range(4):
            server.says("fine")
        for status in (200, 200, 429):
            async with http.post("/v1/chat/completions", json=CHAT) as answer:
                assert answer.status == status
        assert answer.headers["Retry-After"] == "30"
        clock.advance(29.9)
        async with http.post("/v1/chat/completions", json=CHAT) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
        clock.advance(0.1)
        async with http.post("/v1/chat/completions", json=CHAT) as answer:
            assert answer.status == 200
    async with (
        aiohttp.ClientSession(server.url, headers={"x-api-key": "secret"}) as http,
        http.post("/v1/chat/completions", json=CHAT) as answer,
    ):
        assert answer.status == 200  # another key has its own


async def test_a_flood_of_feedback_is_stopped_and_chat_goes_on(
    guarded: tuple[Serving, list[KnownKey], list[str], Clock],
) -> None:
    server, _, _, _ = guarded
    async with aiohttp.ClientSession(server.url, headers={"x-api-key": "secret"}) as http:
        statuses = []
        for _ in range(3):
            async with http.post("/v1/feedback", json={"session_id": "nobody", "score": -1}) as answer:
                statuses.append(answer.status)
        assert statuses == [404, 404, 429]
        server.says("fine")
        async with http.post("/v1/chat/completions", json=CHAT) as answer:
            assert answer.status == 200
    assert server.parts.meter.refused["feedback"] == 1


def test_tokens_are_owed_when_an_answer_took_more_than_there_were() -> None:
    # 60 a minute; 90 spent leave -30: answered again once more than 0 are there, 31 s at 1 a second
    clock = Clock(0.0)
    meter = Meter(Limits(tokens_a_minute=60), clock=clock)
    caller = Keys({}).caller({})
    meter.request(caller)
    meter.spend("local", 90)
    with pytest.raises(Exception, match="tokens a minute") as problem:
        meter.request(caller)
    assert problem.value.retry_s == 31  # type: ignore[attr-defined]
    clock.advance(31.0)
    meter.request(caller)


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_key_with_a_smaller_limit_is_told_that_its_request_is_too_large(
    guarded: tuple[Serving, list[KnownKey], list[str], Clock], is_chunked: bool
) -> None:
    server, others, _, _ = guarded
    others[0] = replace(BOB, limits=Limits(max_body_bytes=100))
    body = b'{"messages": [{"role": "user", "content": "' + b"x" * 200 + b'"}]}'

    async def pieces() -> AsyncIterator[bytes]:
        yield body

    async with (
        aiohttp.ClientSession(server.url, headers={"x-api-key": "bobs"}) as http,
        http.post("/v1/chat/completions", data=pieces() if is_chunked else body) as answer,
    ):
        assert answer.status == 413
        assert (await answer.json())["error"]["code"] == "body_too_large"


def test_only_valid_keys_with_the_right_teach() -> None:
    teacher = KnownKey("tea", key_digest("t"), ALL_RIGHTS)
    gone = replace(teacher, name="gone", revoked_s=1.0)
    keys = Keys({"owner": "o"}, lambda: (BOB, teacher, gone))
    assert [name for name in ("owner", "local", "bob", "tea", "gone", "stranger") if keys.may_teach(name)] == [
        "owner",
        "local",
        "tea",
    ]


async def test_no_page_of_another_origin_reads_an_answer_unless_it_is_named(
    renderer: ChatRenderer, store: Store
) -> None:
    asking = {"Origin": "https://good.example", "Access-Control-Request-Method": "POST"}
    for allowed, origin, is_let_in in (
        ((), "good", False),
        (("https://good.example",), "good", True),
        (("https://good.example",), "bad", False),
    ):
        async with serving(renderer, store, settings=ServeSettings(allowed_origins=allowed)) as server:
            page = {**asking, "Origin": f"https://{origin}.example"}
            async with aiohttp.ClientSession(server.url) as http:
                async with http.options("/v1/chat/completions", headers=page) as answer:
                    assert ("Access-Control-Allow-Origin" in answer.headers) is is_let_in
                    assert (answer.status == 204) is is_let_in
                async with http.get("/v1/models", headers=page) as answer:
                    assert (answer.headers.get("Access-Control-Allow-Origin") == page["Origin"]) is is_let_in
                    shown = answer.headers.get("Access-Control-Expose-Headers", "")
                    assert ("x-openclaw-rl-ignored" in shown) is is_let_in


def test_a_slow_or_idle_client_has_an_end() -> None:
    # What sends its headers, its body or its reading slowly is cut off; tests/serve/test_abuse.py shows each at work.
    settings = ServeSettings()
    assert min(settings.body_s, settings.keepalive_s, settings.stalled_s) > 0
    assert max(settings.body_s, settings.keepalive_s, settings.stalled_s) <= 300
