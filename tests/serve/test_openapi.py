"""The served description: valid, complete, and made of the types that parse."""

from __future__ import annotations

import re

import aiohttp
from openapi_spec_validator import validate
from serve_doubles import Serving

from openclaw_rl.serve.app import ROUTES
from openclaw_rl.serve.openapi import BODIES, BODILESS, PICTURE, described


def test_the_description_is_valid_and_holds_every_route() -> None:
    body = described(ROUTES)
    validate(body)
    paths = body["paths"]
    assert isinstance(paths, dict)
    held = {(method.upper(), path) for path, methods in paths.items() for method in dict(methods)}  # type: ignore[arg-type]
    assert held == {(method, re.sub(r":[^}]*}", "}", path)) for method, path, _, _ in ROUTES}


def test_every_route_that_is_posted_to_says_which_body_it_takes() -> None:
    posted = {(method, path) for method, path, _, _ in ROUTES if method in ("POST", "PUT")}
    assert posted == set(BODIES) | {("POST", path) for path in BODILESS} | {("PUT", PICTURE)}


def test_a_body_is_described_as_it_is_parsed() -> None:
    body = described(ROUTES)
    schema = body["components"]["schemas"]["ChatBody"]  # type: ignore[index,call-overload]
    assert schema["required"] == ["messages"]
    assert schema["properties"]["max_tokens"]["anyOf"] == [{"type": "integer", "minimum": 1}, {"type": "null"}]
    assert schema["properties"]["tools"]["anyOf"][0] == {
        "type": "array",
        "items": {"$ref": "#/components/schemas/ToolSpec"},
    }
    role = body["components"]["schemas"]["MessageSpec"]["properties"]["role"]  # type: ignore[index,call-overload]
    assert role == {"type": "string", "enum": ["system", "developer", "user", "assistant", "tool"]}


async def test_it_is_served_without_a_key(server: Serving) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"{server.url}/openapi.json") as answer:
        assert answer.status == 200
        held = await answer.json()
    assert held["openapi"] == "3.1.0"
    assert held["paths"]["/healthz"]["get"]["security"] == []
    assert "security" not in held["paths"]["/v1/chat/completions"]["post"]
