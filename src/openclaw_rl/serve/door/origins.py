"""Which web pages may read answers: none, unless their origin is named in the settings."""

from __future__ import annotations

from aiohttp import web

from openclaw_rl.serve.failures import Handler
from openclaw_rl.serve.notes import IGNORED, PLACEHOLDERS, TURN, VERSION

_ALLOWED = web.AppKey("allowed_origins", frozenset)
_HEADERS = "Authorization, Content-Type, X-Api-Key, X-Session-Id, X-User-Id, X-Agent-Id, X-Turn-Type, X-Session-Done"

_SHOWN = ", ".join((TURN, VERSION, IGNORED, PLACEHOLDERS))  # of an answer, which a page may read


def allow_origins(app: web.Application, origins: tuple[str, ...]) -> None:
    """Lets the pages of these origins in; without any, a browser keeps every page from reading an answer."""
    if not origins:
        return
    app[_ALLOWED] = frozenset(origins)
    app.middlewares.append(_preflight)
    app.on_response_prepare.append(_allow)


@web.middleware
async def _preflight(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answers what a browser asks before it sends a page's request."""
    is_asked = request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers
    if not is_asked or request.headers.get("Origin") not in request.app[_ALLOWED]:
        return await handler(request)
    headers = {
        "Access-Control-Allow-Methods": "GET, POST, PUT, DELETE",
        "Access-Control-Allow-Headers": _HEADERS,
        "Access-Control-Max-Age": "600",
    }
    return web.Response(status=204, headers=headers)


async def _allow(request: web.Request, response: web.StreamResponse) -> None:
    origin = request.headers.get("Origin")
    if origin is not None and origin in request.app[_ALLOWED]:
        response.headers["Access-Control-Allow-Origin"] = origin
        response.headers["Access-Control-Expose-Headers"] = _SHOWN
        response.headers["Vary"] = "Origin"
