"""The owner's orders over HTTP: pin a version, take no step, compare what two versions say."""

from __future__ import annotations

import msgspec
from aiohttp import web

from openclaw_rl.core.message import Json, Message, Role, message
from openclaw_rl.core.version import SHARED
from openclaw_rl.errors import RequestError
from openclaw_rl.serve.apis.chat.wire import parsed
from openclaw_rl.serve.control.routes import answer, version_named
from openclaw_rl.serve.parts import Orders, ServeParts
from openclaw_rl.serve.request.names import check_name

MOST_TOKENS = 4096


class PinBody(msgspec.Struct):
    """The body of POST /v1/rl/pin."""

    version: str | int


class UnpinBody(msgspec.Struct):
    """The body of POST /v1/rl/unpin."""

    scope: str = SHARED


class SaidBody(msgspec.Struct):
    """One message of a conversation that versions are to answer."""

    role: Role
    content: str


class CompareBody(msgspec.Struct):
    """The body of POST /v1/rl/compare: what versions are asked, as single `prompts` or whole `conversations`.

    Without either, requests of the latest conversations are repeated.
    """

    versions: list[str | int]
    prompts: list[str] = []
    conversations: list[list[SaidBody]] = []
    max_tokens: int = 256


async def pin(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Serves this version whatever is trained from now on."""
    version = version_named(parsed(await request.read(), PinBody).version)
    await _orders(parts).pin(version)
    return answer({"version": str(version), "pinned": True})


async def unpin(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Removes the pin: the newest version that passed the gate is served again."""
    scope = parsed(await request.read(), UnpinBody).scope
    check_name(scope, "scope")
    return answer({"version": str(await _orders(parts).unpin(scope)), "pinned": False})


async def freeze(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Takes no step from now on; samples that are ready wait."""
    await parts.store.orders.freeze(at_s=parts.clock())
    return answer({"frozen": True})


async def unfreeze(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Takes steps again."""
    was_frozen = await parts.store.orders.unfreeze()
    return answer({"frozen": False, "was_frozen": was_frozen})


async def compare(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """The replies of two or more versions to the same prompts."""
    body = parsed(await request.read(), CompareBody)
    if not 1 <= body.max_tokens <= MOST_TOKENS:
        raise RequestError(
            f"max_tokens is {body.max_tokens}", fix=f"send a number from 1 to {MOST_TOKENS}", param="max_tokens"
        )
    if not 2 <= len(body.versions) <= 4:
        raise RequestError(f"{len(body.versions)} versions are named", fix="name two to four", param="versions")
    versions = [version_named(name) for name in body.versions]
    asked: list[tuple[Message, ...]] = [(message(Role.USER, text),) for text in body.prompts]
    asked += [tuple(message(one.role, one.content) for one in said) for said in body.conversations if said]
    found = await _orders(parts).compare(versions, asked, body.max_tokens)
    rows: list[Json] = [
        {"messages": [item.as_json() for item in one.asked], "answers": list(one.answers), "same": one.is_same}
        for one in found
    ]
    return answer({"versions": [str(version) for version in versions], "compared": rows})


def _orders(parts: ServeParts) -> Orders:
    if parts.orders is None:
        raise RequestError("this server takes no orders about versions", status=501)
    return parts.orders
