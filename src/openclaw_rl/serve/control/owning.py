"""The settings in force and the keys of an installation, for its owner."""

from __future__ import annotations

import msgspec
from aiohttp import web

from openclaw_rl.core.message import Json
from openclaw_rl.core.rights import Right
from openclaw_rl.errors import RequestError
from openclaw_rl.serve.apis.chat.wire import parsed
from openclaw_rl.serve.control.routes import answer
from openclaw_rl.serve.door.auth import OPEN, OWNER
from openclaw_rl.serve.parts import OwnerControl, ServeParts
from openclaw_rl.serve.request.names import check_name


class KeyBody(msgspec.Struct):
    """The body of POST /v1/rl/keys: the key's name, and its rights."""

    name: str
    rights: list[Right]


async def settings(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Every setting except the secrets: its value, its default, where the value comes from and what it is for."""
    rows: list[Json] = [dict(row) for row in await _owner(parts).settings()]
    return answer({"settings": rows})


async def keys(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """The keys: what each may do, when it was made and last used, whether it was revoked; `may_change`: by this key."""
    rows: list[Json] = [dict(row) for row in await _owner(parts).keys()]
    return answer({"keys": rows, "may_change": key_name in (OWNER, OPEN)})


async def key_added(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Makes a key and returns it, only this once: the server keeps its hash. Needs the owner's own key."""
    _check_owner(key_name)
    body = parsed(await request.read(), KeyBody)
    check_name(body.name, "name")
    made = await _owner(parts).add_key(body.name, frozenset(body.rights))
    return answer({"name": body.name, "key": made})


async def key_revoked(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Revokes a key: it is not accepted any more. Needs the owner's own key."""
    _check_owner(key_name)
    await _owner(parts).revoke_key(request.match_info["id"])
    return answer({"name": request.match_info["id"], "revoked": True})


def _check_owner(key_name: str) -> None:
    """A key with the scope admin may read everything but not make keys: a leaked one would outlive its revocation."""
    if key_name not in (OWNER, OPEN):
        raise RequestError(
            f"the API key {key_name!r} may not make or revoke keys",
            fix="sign in with the server's own key, in the file api_key of its home folder, or use `openclaw-rl keys`",
            status=403,
            code="insufficient_scope",
        )


def _owner(parts: ServeParts) -> OwnerControl:
    if parts.owner is None:
        raise RequestError("this server shows neither settings nor keys", status=501)
    return parts.owner
