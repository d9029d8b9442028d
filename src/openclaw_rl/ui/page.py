"""The owner's page at `/`: its files, and signing in and out. What it shows it asks for at /v1/rl, as any program does.

All that the page may load or run is its own files, held to that by a content security policy: no inline script, no
style from elsewhere, no frame around it.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

import msgspec
from aiohttp import web

from openclaw_rl import __version__
from openclaw_rl.core.message import Json
from openclaw_rl.errors import RequestError
from openclaw_rl.serve.apis.chat.wire import parsed
from openclaw_rl.serve.door.auth import LIFE_S, Caller, cookie_name
from openclaw_rl.serve.failures import error_response
from openclaw_rl.serve.parts import ServeParts

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
MOST_BODY = 4096
SESSION = "/ui/session"


class SignInBody(msgspec.Struct):
    """The body of POST /ui/session."""

    key: str


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file of the page, packed once."""

    body: bytes
    packed: bytes
    kind: str
    tag: str


def add_page(app: web.Application, parts: ServeParts) -> None:
    """Adds the page to the server."""
    held = page_files()

    async def static(request: web.Request) -> web.StreamResponse:
        file = held.get(request.match_info.get("name", "index.html"))
        if file is None:
            raise web.HTTPNotFound
        return _sent(request, file)

    async def sign_in(request: web.Request) -> web.StreamResponse:
        body = parsed(await _little(request), SignInBody)
        token, caller = parts.signed_in.begin(request, body.key.strip())
        response = _json(_who(parts, caller))
        response.set_cookie(
            cookie_name(request),
            token,
            max_age=int(LIFE_S),
            path="/",
            httponly=True,
            samesite="Strict",
            secure=request.secure or request.headers.get("Origin", "").startswith("https://"),
        )
        return response

    async def who(request: web.Request) -> web.StreamResponse:
        try:
            return _json(_who(parts, parts.signed_in.caller(request)))
        except RequestError as problem:
            if problem.status != 401:
                raise
            return _json({"name": None})

    async def sign_out(request: web.Request) -> web.StreamResponse:
        parts.signed_in.end(request)
        response = _json({"signed_in": False})
        response.del_cookie(cookie_name(request), path="/")
        return response

    app.router.add_get("/", _handled(static))
    app.router.add_get(SESSION, _handled(who))
    app.router.add_post(SESSION, _handled(sign_in))
    app.router.add_delete(SESSION, _handled(sign_out))
    app.router.add_get("/ui/{name:.+}", _handled(static))


def page_files() -> dict[str, PageFile]:
    """The page's files by their path."""
    return dict(_walk(files("openclaw_rl.ui").joinpath("static"), ""))


def _walk(folder: Traversable, where: str) -> list[tuple[str, PageFile]]:
    found = []
    for item in folder.iterdir():
        name = f"{where}{item.name}"
        if item.is_dir():
            found += _walk(item, f"{name}/")
        elif (kind := TYPES.get(name[name.rfind(".") :])) is not None:
            body = item.read_bytes()
            tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
            found.append((name, PageFile(body, gzip.compress(body, mtime=0), kind, tag)))
    return found


def _sent(request: web.Request, file: PageFile) -> web.Response:
    headers = {**HEADERS, "ETag": file.tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if request.headers.get("If-None-Match") == file.tag:
        return web.Response(status=304, headers=headers)
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        headers["Content-Encoding"] = "gzip"
        return web.Response(body=file.packed, content_type=file.kind, charset="utf-8", headers=headers)
    return web.Response(body=file.body, content_type=file.kind, charset="utf-8", headers=headers)


def _who(parts: ServeParts, caller: Caller) -> dict[str, Json]:
    return {
        "name": caller.name,
        "rights": [right.value for right in sorted(caller.rights)],
        "model": parts.models[0],
        "program": __version__,
    }


async def _little(request: web.Request) -> bytes:
    """The body, of a few bytes. Raises RequestError."""
    body = bytearray()
    async for part in request.content.iter_any():
        body += part
        if len(body) > MOST_BODY:
            raise RequestError("the body is too large", fix="send the key alone", status=413)
    return bytes(body)


def _json(body: dict[str, Json]) -> web.Response:
    headers = {**HEADERS, "Cache-Control": "no-store"}
    return web.Response(body=msgspec.json.encode(body), content_type="application/json", headers=headers)


def _handled(
    answering: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return await answering(request)
        except Exception as problem:  # the edge of a request: recorded where the body is made
            return error_response(problem, request.path)

    return handle
