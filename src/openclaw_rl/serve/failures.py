"""Errors as clients know them, made here alone: in OpenAI's shape, and in Anthropic's for its own paths."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from openclaw_rl.errors import (
    AdapterError,
    ConfigError,
    ContextError,
    DamageError,
    DiskError,
    EngineError,
    OpenClawRLError,
    RequestError,
    StoreError,
)

log = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_PATH = re.compile(r" - at `(?:key in )?\$\.?([^`]*)`$")
_RETRY_AFTER_S = "2"
_ANTHROPIC = "/v1/messages"
_RESPONSES = "/v1/responses"
_MOST_SAID = 2000  # characters of a message
CODE = "unsupported_endpoint"
_AGENTS = "keeps no agents, threads or stores"
_TEXT = "; the model it serves reads and writes text"
_BATCHES = "keeps no batches; send the requests one by one, as many at once as you like"
_JOBS = "takes no jobs; it learns from the conversations it has"
_ELSEWHERE = "point the program at another server for this, or switch it off"
# The part of a path below /v1, and what this server does not do. The first that fits counts.
_PARTS: tuple[tuple[str, str], ...] = (
    ("embeddings", "makes no embeddings; the model it serves writes text"),
    ("engines", "has no engines, as the API has none any more; send the model's name in the body"),
    ("images", f"neither draws nor sees{_TEXT}"),
    ("videos", f"makes no videos{_TEXT}"),
    ("audio", f"neither hears nor speaks{_TEXT}"),
    ("realtime", f"neither hears nor speaks{_TEXT}"),
    ("moderations", "does not moderate"),
    ("rerank", "ranks nothing"),
    ("score", "ranks nothing"),
    ("messages/batches", _BATCHES),
    ("batches", _BATCHES),
    ("fine_tuning", _JOBS),
    ("fine-tunes", _JOBS),
    ("files", "keeps no files; send their text in a message"),
    ("uploads", "keeps no files; send their text in a message"),
    ("assistants", _AGENTS),
    ("threads", _AGENTS),
    ("vector_stores", _AGENTS),
    ("conversations", "gives conversations no id; continue one with previous_response_id"),
    ("containers", "runs no code"),
    ("skills", "runs no code"),
    ("evals", "runs no evaluations over HTTP; `openclaw-rl eval` does"),
    ("complete", "has no such API any more; use /v1/messages"),
)
_BELOW_V1 = ("chat/completions", "completions", "responses", "messages")
_OLLAMA = ("api/chat", "api/generate", "api/tags", "api/show", "api/embed", "api/embeddings", "api/version")


class _Problem(msgspec.Struct, omit_defaults=True):
    message: str
    type: str
    param: str | None
    code: str | None
    fix: str = ""  # what to do about it, as the message ends; left out if unknown


class _ProblemBody(msgspec.Struct):
    error: _Problem


def error_body(problem: BaseException) -> tuple[int, bytes]:
    """Status and JSON for any error; an unexpected one is logged with an id that the client receives."""
    match problem:
        case RequestError():
            return problem.status, _encoded(problem, problem.status, problem.param, problem.code)
        case msgspec.ValidationError():
            message, param = _what_and_where(str(problem))
            return 400, _encoded(message, 400, param, "invalid_type")
        case msgspec.DecodeError():
            return 400, _encoded(f"the body is not valid JSON: {problem}", 400, None, "invalid_json")
        case web.HTTPRequestEntityTooLarge():
            return 413, _encoded("the request body is larger than this server accepts", 413, None, "body_too_large")
        case web.HTTPException():
            return problem.status, _encoded(problem.reason.lower(), problem.status, None, None)
        case DiskError():
            log.error("not stored: %s", problem)
            return 507, _encoded(problem, 507, None, "cannot_be_stored")
        case DamageError():
            log.error("the store is damaged: %s", problem)
            return 500, _encoded(problem, 500, None, "store_damaged")
        case StoreError():
            log.error("store failed: %s", problem)
            return 503, _encoded(problem, 503, None, "store_unavailable")
        case EngineError():
            log.error("engine failed: %s", problem)
            return 503, _encoded(problem, 503, None, "engine_unavailable")
        case ConfigError() | AdapterError():  # an order about a version that cannot be carried out now
            return 409, _encoded(problem, 409, None, "conflict")
    name = uuid.uuid4().hex[:12]
    log.error("unexpected error id=%s", name, exc_info=problem)
    known = problem if isinstance(problem, OpenClawRLError) else f"unexpected error {name}: see the server's log"
    return 500, _encoded(known, 500, None, "internal_error")


def told_of(body: bytes) -> tuple[str | None, str, str | None]:
    """Code, message and parameter of an error's body."""
    error = msgspec.json.decode(body, type=_ProblemBody).error
    return error.code, error.message, error.param


def as_anthropic(status: int, body: bytes) -> bytes:
    """The body of an error in the shape that Anthropic's clients know."""
    error = msgspec.json.decode(body, type=_ProblemBody).error
    kind = "request_too_large" if status == 413 else error.type.replace("server_error", "api_error")
    return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": error.message}})


def error_response(problem: BaseException, path: str) -> web.Response:
    """The error as an answer of that path."""
    if isinstance(problem, ContextError):
        problem = _worded(problem, path)
    status, body = error_body(problem)
    if path.startswith(_ANTHROPIC):
        body = as_anthropic(status, body)
    headers = {"Retry-After": _RETRY_AFTER_S} if status in (429, 503) else {}
    if isinstance(problem, RequestError) and problem.retry_s is not None:
        headers["Retry-After"] = str(problem.retry_s)
    if isinstance(problem, web.HTTPMethodNotAllowed):
        headers["Allow"] = problem.headers["Allow"]
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)


def context_problem(problem: ContextError) -> RequestError:
    """The refusal of a prompt that is too long, in the words of OpenAI's Responses API, with the figures."""
    fix = "Your input exceeds the context window of this model. Please adjust your input and try again."
    return RequestError(problem.problem, fix=fix, code=problem.code, param=problem.param)


def _worded(problem: ContextError, path: str) -> RequestError:
    """In the words of the API that was called, which its clients look for."""
    if path.startswith(_ANTHROPIC):
        most = problem.most - 1  # an answer takes one at least
        return RequestError(f"prompt is too long: {max(problem.tokens, problem.most)} tokens > {most} maximum")
    return context_problem(problem) if path.startswith(_RESPONSES) else problem


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answers what is raised before a handler is found: an unknown path, a wrong method."""
    try:
        return await handler(request)
    except web.HTTPNotFound as problem:
        return error_response(unserved(request.path) or problem, request.path)
    except Exception as problem:  # the edge of a request: recorded in error_body
        return error_response(problem, request.path)


def _what_and_where(text: str) -> tuple[str, str | None]:
    """The message and the parameter in `Expected ... - at `$.path``."""
    found = _PATH.search(text)
    param = found.group(1) if found else None
    what = text[: found.start()] if found else text
    missing = re.search(r"missing required field `([^`]+)`", what)
    if missing:
        param = f"{param}.{missing.group(1)}" if param else missing.group(1)
    return (f"{param}: {what[:1].lower()}{what[1:]}" if param else what), param


def _encoded(problem: str | OpenClawRLError, status: int, param: str | None, code: str | None) -> bytes:
    message = _shortened(_plain(str(problem)))
    fix = _shortened(_plain(problem.fix)) if isinstance(problem, OpenClawRLError) else ""
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return msgspec.json.encode(_ProblemBody(_Problem(message, kind, param, code, fix)))


def _plain(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _shortened(message: str) -> str:
    """The message with its middle cut if it quotes a very long value; what to do is at its end."""
    left_out = len(message) - _MOST_SAID
    if left_out <= 0:
        return message
    return f"{message[: _MOST_SAID // 2]} ({left_out:,} characters left out) {message[-_MOST_SAID // 2 :]}"


def unserved(path: str) -> RequestError | None:
    """The refusal of a path that is known but not served; None for an unknown one.

    With 404, since clients retry a 501 again and again.
    """
    held = path.strip("/")
    if held.startswith("v1/v1/"):
        return _refusal(f"{path} contains /v1 twice", "remove /v1 from the client's base URL")
    if held in _BELOW_V1:
        return _refusal(f"{path} lacks /v1", "set the client's base URL to one that ends in /v1")
    if held in _OLLAMA:
        return _refusal(
            f"{path} is Ollama's", "set the client to an OpenAI-compatible server, its base URL ending in /v1"
        )
    below = held.removeprefix("v1/")
    for part, why in _PARTS:
        if below == part or below.startswith(f"{part}/"):
            return _refusal(f"{path} is not served here: this server {why}", _ELSEWHERE)
    return None


def _refusal(problem: str, fix: str) -> RequestError:
    return RequestError(problem, fix=fix, status=404, code=CODE)
