"""The HTTP server: the handler of each path, the right it needs, allowed origins, and how errors are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from openclaw_rl.core.message import Json
from openclaw_rl.core.rights import Right
from openclaw_rl.core.version import SHARED
from openclaw_rl.errors import RequestError
from openclaw_rl.serve.answers import IGNORED, PLACEHOLDERS, TURN, VERSION
from openclaw_rl.serve.apis.chat.route import chat_completions
from openclaw_rl.serve.apis.completions import completions
from openclaw_rl.serve.apis.messages.route import count_tokens, messages
from openclaw_rl.serve.apis.responses import route as responses
from openclaw_rl.serve.control import conversations, episodes, hints, learning, orders, overruling, owning, training
from openclaw_rl.serve.control import forget as forgetting
from openclaw_rl.serve.control import routes as control
from openclaw_rl.serve.control.export import export
from openclaw_rl.serve.control.routes import answer
from openclaw_rl.serve.door.auth import Caller
from openclaw_rl.serve.failures import Handler, answer_errors, error_response
from openclaw_rl.serve.openapi import Answering, Route, described
from openclaw_rl.serve.parts import ALIAS, ServeParts
from openclaw_rl.serve.request.names import check_headers, check_name
from openclaw_rl.serve.settings import ServeSettings

_SETTINGS = web.AppKey("settings", ServeSettings)
NOBODY = Caller("", frozenset())  # the caller of a route that needs no key
_ALLOWED = web.AppKey("allowed_origins", frozenset)
_HEADERS = "Authorization, Content-Type, X-Api-Key, X-Session-Id, X-User-Id, X-Agent-Id, X-Turn-Type, X-Session-Done"
_SHOWN = ", ".join((TURN, VERSION, IGNORED, PLACEHOLDERS))  # of an answer, which a page may read
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


async def models(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """The model names that clients may use."""
    names = (*parts.models, ALIAS) if ALIAS not in parts.models else parts.models
    listed: list[Json] = [_model_json(parts, name) for name in names]
    return answer({"object": "list", "data": listed, "has_more": False, "first_id": names[0], "last_id": names[-1]})


async def model(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """One of those names."""
    name = parts.model_named(request.match_info["id"])
    return answer(_model_json(parts, name))


async def health(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Whether the server answers, and with which weights."""
    return answer({"status": "ok", "model": parts.models[0], "version": str(parts.current(SHARED))})


async def metrics(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Counters for Prometheus."""
    for how, count in parts.renderer.stats.items():
        parts.metrics.prompts.labels(how).set(count)
    return web.Response(body=parts.metrics.text(), headers={"Content-Type": _METRICS_TYPE})


async def openapi(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """This description."""
    return answer(described(ROUTES))


def _model_json(parts: ServeParts, name: str) -> dict[str, Json]:
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "openclaw-rl",
        "max_model_len": parts.context_length,
        "type": "model",  # from here on as Anthropic's clients read it
        "display_name": name,
        "created_at": "1970-01-01T00:00:00Z",
        "lifecycle": "active",
        "max_input_tokens": parts.context_length - 1,
        "max_tokens": parts.settings.most_tokens or parts.context_length - 1,
    }


# Method, path, handler, and the right that a key must have; None if no key is needed.
ROUTES: tuple[Route, ...] = (
    ("POST", "/v1/chat/completions", chat_completions, Right.CHAT),
    ("POST", "/v1/completions", completions, Right.CHAT),
    ("POST", "/v1/responses", responses.responses, Right.CHAT),
    ("POST", "/v1/responses/input_tokens", responses.input_tokens, Right.CHAT),
    ("GET", "/v1/responses/{id}", responses.response, Right.CHAT),
    ("DELETE", "/v1/responses/{id}", responses.response_deleted, Right.CHAT),
    ("GET", "/v1/responses/{id}/input_items", responses.response_input, Right.CHAT),
    ("POST", "/v1/responses/{id}/cancel", responses.response_cancelled, Right.CHAT),
    ("POST", "/v1/messages", messages, Right.CHAT),
    ("POST", "/v1/messages/count_tokens", count_tokens, Right.CHAT),
    ("GET", "/v1/models", models, None),  # agents request it without a key, to check whether the server is up
    ("GET", "/v1/models/{id:.+}", model, None),
    ("GET", "/models", models, None),
    ("GET", "/models/{id:.+}", model, None),
    ("GET", "/healthz", health, None),
    ("GET", "/health", health, None),
    ("GET", "/metrics", metrics, None),
    ("GET", "/openapi.json", openapi, None),
    ("POST", "/v1/feedback", control.feedback, Right.FEEDBACK),
    ("POST", "/v1/sessions/{id}/done", control.session_done, Right.CHAT),
    ("POST", "/v1/rl/session_done", control.session_done, Right.CHAT),
    ("GET", "/v1/rl/status", control.status, Right.ADMIN),
    ("GET", "/v1/rl/turns", control.turns, Right.ADMIN),
    ("GET", "/v1/rl/turns/{id}", control.turn, Right.ADMIN),
    ("PUT", "/v1/rl/turns/{id}/verdict", overruling.verdict, Right.ADMIN),
    ("POST", "/v1/rl/turns/{id}/exclude", overruling.exclude, Right.ADMIN),
    ("GET", "/v1/rl/overruled", overruling.overruled, Right.ADMIN),
    ("GET", "/v1/rl/learning", learning.learning, Right.ADMIN),
    ("GET", "/v1/rl/events", learning.events, Right.ADMIN),
    ("GET", "/v1/rl/conversations", conversations.conversations, Right.ADMIN),
    ("GET", "/v1/rl/conversations/{id}", conversations.conversation, Right.ADMIN),
    ("GET", "/v1/rl/settings", owning.settings, Right.ADMIN),
    ("GET", "/v1/rl/keys", owning.keys, Right.ADMIN),
    ("POST", "/v1/rl/keys", owning.key_added, Right.ADMIN),
    ("DELETE", "/v1/rl/keys/{id}", owning.key_revoked, Right.ADMIN),
    ("GET", "/v1/rl/versions", control.versions, Right.ADMIN),
    ("GET", "/v1/rl/versions/{id}", control.version, Right.ADMIN),
    ("POST", "/v1/rl/rollback", control.rollback, Right.ADMIN),
    ("POST", "/v1/rl/pin", orders.pin, Right.ADMIN),
    ("POST", "/v1/rl/unpin", orders.unpin, Right.ADMIN),
    ("POST", "/v1/rl/freeze", orders.freeze, Right.ADMIN),
    ("POST", "/v1/rl/unfreeze", orders.unfreeze, Right.ADMIN),
    ("POST", "/v1/rl/compare", orders.compare, Right.ADMIN),
    ("POST", "/v1/rl/episodes", episodes.begin, Right.ADMIN),
    ("GET", "/v1/rl/episodes", episodes.listed, Right.ADMIN),
    ("GET", "/v1/rl/runs", episodes.runs, Right.ADMIN),
    ("GET", "/v1/rl/episodes/{id}", episodes.episode, Right.ADMIN),
    ("POST", "/v1/rl/episodes/{id}/steps", episodes.report_step, Right.ADMIN),
    ("GET", "/v1/rl/episodes/{id}/steps/{step}/picture", episodes.picture, Right.ADMIN),
    ("PUT", "/v1/rl/episodes/{id}/steps/{step}/picture", episodes.keep_picture, Right.ADMIN),
    ("POST", "/v1/rl/episodes/{id}/end", episodes.end, Right.ADMIN),
    ("GET", "/v1/rl/export", export, Right.ADMIN),
    ("POST", "/v1/rl/forget", forgetting.forget, Right.ADMIN),
    ("GET", "/v1/rl/forget", forgetting.standing, Right.ADMIN),
    ("GET", "/v1/rl/training", training.standing, Right.ADMIN),
    ("POST", "/v1/rl/training/leases", training.lease, Right.ADMIN),
    ("POST", "/v1/rl/training/leases/{id}/extend", training.extend, Right.ADMIN),
    ("GET", "/v1/rl/training/leases/{id}/files/{name}", training.start_file, Right.ADMIN),
    ("POST", "/v1/rl/training/leases/{id}/files/{name}", training.receive, Right.ADMIN),
    ("POST", "/v1/rl/training/leases/{id}/done", training.hand_back, Right.ADMIN),
    ("POST", "/v1/rl/training/leases/{id}/give_up", training.give_up, Right.ADMIN),
    ("GET", "/v1/rl/hints", hints.listed, Right.ADMIN),
    ("PUT", "/v1/rl/hints", hints.add, Right.ADMIN),
    ("PUT", "/v1/rl/hints/{id}", hints.change, Right.ADMIN),
    ("DELETE", "/v1/rl/hints/{id}", hints.remove, Right.ADMIN),
)


def build_app(parts: ServeParts, page: Callable[[web.Application, ServeParts], None] | None = None) -> web.Application:
    """The server's application; `page` adds the web page to it, if there is one."""
    app = web.Application(middlewares=[answer_errors], client_max_size=parts.settings.max_body_bytes)
    app[_SETTINGS] = parts.settings
    for method, path, answering, right in ROUTES:
        app.router.add_route(method, path, _handler(answering, parts, path, right))
    if page is not None:
        page(app, parts)
    allow_origins(app, parts.settings.allowed_origins)
    return app


def runner_of(app: web.Application) -> web.AppRunner:
    """What runs the application: a client that goes away cancels its handler, so that its slot is free at once."""
    return web.AppRunner(app, handler_cancellation=True, access_log=None, keepalive_timeout=app[_SETTINGS].keepalive_s)


def _admitted(request: web.Request, parts: ServeParts, right: Right) -> Caller:
    """The caller of the request. Raises RequestError (401, 403, 429) and HTTPRequestEntityTooLarge."""
    caller = parts.signed_in.caller(request)
    caller.check(right)
    parts.meter.size(caller, request.content_length or 0)
    parts.meter.request(caller, is_feedback=right is Right.FEEDBACK)
    return caller


def _handler(answering: Answering, parts: ServeParts, path: str, right: Right | None) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            caller = NOBODY if right is None else _admitted(request, parts, right)
            check_headers(request.headers)
            for name, value in request.match_info.items():
                check_name(value, name)
            await received(request, parts.settings)
            if request.body_exists and right is not None:
                parts.meter.size(caller, len(await request.read()))  # its headers need not have named it
            response = await answering(request, parts, caller.name)
        except Exception as problem:  # the edge of a request: recorded where the body is made
            response = error_response(problem, path)
        parts.metrics.requests.labels(path, str(response.status)).inc()
        return response

    return handle


async def received(request: web.Request, settings: ServeSettings) -> None:
    """Returns once the body has arrived, so that `request.read()` does not wait.

    Raises RequestError if it arrives too slowly or breaks off, and HTTPRequestEntityTooLarge.
    """
    if not request.body_exists:
        return
    if (request.content_length or 0) > settings.max_body_bytes:  # known before a byte of it is kept
        raise web.HTTPRequestEntityTooLarge(settings.max_body_bytes)
    try:
        if request.content.is_eof():
            await request.read()
        else:
            async with asyncio.timeout(settings.body_s):
                await request.read()
    except TimeoutError:
        raise RequestError(
            f"the request body did not arrive within {settings.body_s:g} s",
            fix="send it at once",
            status=408,
            code="body_too_slow",
        ) from None
    except web.RequestPayloadError as problem:
        raise RequestError(
            f"the request body breaks off or is not encoded as its headers say: {problem}",
            fix="send as many bytes as Content-Length names, or whole chunks",
            code="invalid_body",
        ) from problem


def allow_origins(app: web.Application, origins: tuple[str, ...]) -> None:
    """Lets pages of these origins read answers; without any, browsers keep every other page from doing so."""
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
