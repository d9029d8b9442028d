"""GET /openapi.json: every route described in OpenAPI 3.1, the bodies by the types that parse them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
from aiohttp import web

from openclaw_rl import __version__
from openclaw_rl.core.episode import EpisodeState, FailureClass
from openclaw_rl.core.ledger import State
from openclaw_rl.core.message import Json
from openclaw_rl.core.rights import Right
from openclaw_rl.serve.answers import IGNORED, PLACEHOLDERS, TURN, VERSION
from openclaw_rl.serve.apis.chat import wire
from openclaw_rl.serve.apis.messages import wire as messages_wire
from openclaw_rl.serve.apis.responses import wire as responses_wire
from openclaw_rl.serve.control import conversations, episodes, hints, orders, overruling, owning, training
from openclaw_rl.serve.control import forget as forgetting
from openclaw_rl.serve.control import routes as control
from openclaw_rl.serve.parts import ServeParts
from openclaw_rl.serve.request.names import MOST_CHARS, MOST_EPISODE_CHARS
from openclaw_rl.store.forms import ExportForm

Answering = Callable[[web.Request, ServeParts, str], Awaitable[web.StreamResponse]]
Route = tuple[str, str, Answering, Right | None]  # method, path, what answers it, the right a key needs

# The type of each route's body; the other routes take none.
BODIES: dict[tuple[str, str], type[msgspec.Struct]] = {
    ("POST", "/v1/chat/completions"): wire.ChatBody,
    ("POST", "/v1/completions"): wire.CompletionBody,
    ("POST", "/v1/responses"): responses_wire.ResponsesBody,
    ("POST", "/v1/responses/input_tokens"): responses_wire.InputTokensBody,
    ("POST", "/v1/messages"): messages_wire.MessagesBody,
    ("POST", "/v1/messages/count_tokens"): messages_wire.CountTokensBody,
    ("POST", "/v1/feedback"): control.FeedbackBody,
    ("POST", "/v1/rl/rollback"): control.RollbackBody,
    ("POST", "/v1/rl/pin"): orders.PinBody,
    ("POST", "/v1/rl/unpin"): orders.UnpinBody,
    ("POST", "/v1/rl/compare"): orders.CompareBody,
    ("POST", "/v1/rl/forget"): forgetting.ForgetBody,
    ("POST", "/v1/rl/episodes"): episodes.EpisodeBody,
    ("POST", "/v1/rl/episodes/{id}/steps"): episodes.EpisodeStepBody,
    ("POST", "/v1/rl/episodes/{id}/end"): episodes.EpisodeEndBody,
    ("PUT", "/v1/rl/turns/{id}/verdict"): overruling.VerdictBody,
    ("POST", "/v1/rl/keys"): owning.KeyBody,
    ("POST", "/v1/rl/training/leases"): training.LeaseBody,
    ("POST", "/v1/rl/training/leases/{id}/done"): training.HandBackBody,
    ("POST", "/v1/rl/training/leases/{id}/give_up"): training.GiveUpBody,
    ("PUT", "/v1/rl/hints"): hints.AddBody,
    ("PUT", "/v1/rl/hints/{id}"): hints.ChangeBody,
}
BODILESS = frozenset(
    {
        "/v1/sessions/{id}/done",
        "/v1/rl/session_done",
        "/v1/rl/freeze",
        "/v1/rl/unfreeze",
        "/v1/responses/{id}/cancel",
        "/v1/rl/turns/{id}/exclude",
        "/v1/rl/training/leases/{id}/extend",
        "/v1/rl/training/leases/{id}/files/{name}",  # its body is the file's bytes
    }
)  # POST routes without a JSON body: all else is in their path, query and headers
PICTURE = "/v1/rl/episodes/{id}/steps/{step}/picture"  # its body, sent and received, is a PNG
_SAYING = ("ChatBody", "CompletionBody", "ResponsesBody", "MessagesBody")
ANSWERING = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"})

_TEXT: Json = {"type": "string"}
_AT_LEAST_1: dict[str, Json] = {"minimum": 1}
_SHARE: dict[str, Json] = {"minimum": 0, "maximum": 1}
# What is checked only after parsing, as far as a schema can express it: (type, field) -> keywords of the schema.
_NARROWER: dict[tuple[str, str], dict[str, Json]] = {
    ("MessageSpec", "role"): {"enum": ["system", "developer", "user", "assistant", "tool"]},
    ("FunctionSpec", "parameters"): {"type": "object"},
    ("OfferedTool", "parameters"): {"type": ["object", "null"]},
    ("Item", "role"): {"enum": ["system", "developer", "user", "assistant"]},
    ("MessageParam", "role"): {"enum": ["user", "assistant"]},
    ("ToolChoice", "type"): {"enum": ["auto", "any", "tool", "none"]},
    ("ToolParam", "input_schema"): {"type": "object"},
    ("Thinking", "type"): {"enum": ["enabled", "disabled", "adaptive"]},
    ("FeedbackBody", "score"): {"enum": [-1, 0, 1]},
    ("VerdictBody", "score"): {"enum": [-1, 0, 1]},
    ("VerdictBody", "hints"): {"maxItems": overruling.MOST_HINTS},
    ("EpisodeBody", "task"): {"minLength": 1, "maxLength": MOST_EPISODE_CHARS},
    ("EpisodeBody", "group_size"): _AT_LEAST_1,
    ("EpisodeStepBody", "step"): {"minimum": 0},
    ("EpisodeEndBody", "failure"): {"enum": [each.value for each in FailureClass]},
    ("CompareBody", "versions"): {"minItems": 2, "maxItems": 4},
    ("CompareBody", "max_tokens"): {"minimum": 1, "maximum": 4096},
    **{
        (body, "temperature"): {"minimum": 0, "maximum": 10}
        for body in ("ChatBody", "CompletionBody", "ResponsesBody", "MessagesBody")
    },
    **{(body, "top_p"): _SHARE for body in ("ChatBody", "CompletionBody", "ResponsesBody", "MessagesBody")},
    **{(body, "min_p"): _SHARE for body in ("ChatBody", "CompletionBody", "ResponsesBody", "MessagesBody")},
    **{(body, "max_tokens"): _AT_LEAST_1 for body in ("ChatBody", "CompletionBody", "MessagesBody")},
    **{(body, "n"): _AT_LEAST_1 for body in ("ChatBody", "CompletionBody")},
    ("ChatBody", "messages"): {"minItems": 1},
    ("ChatBody", "max_completion_tokens"): _AT_LEAST_1,
    ("ChatBody", "top_logprobs"): {"minimum": 0, "maximum": 20},
    ("ChatBody", "chat_template_kwargs"): {"type": ["object", "null"]},
    ("CompletionBody", "logprobs"): {"minimum": 0, "maximum": 20},
    ("ResponsesBody", "max_output_tokens"): _AT_LEAST_1,
    ("ResponsesBody", "chat_template_kwargs"): {"type": ["object", "null"]},
    ("MessagesBody", "messages"): {"minItems": 1},
}
_QUERIES: dict[tuple[str, str], dict[str, Json]] = {
    ("GET", "/v1/rl/turns"): {
        "limit": {"type": "integer", "minimum": 1, "maximum": 500, "default": 50},
        "session": _TEXT,
        "state": {"type": "string", "enum": [state.value for state in State]},
        "before": _TEXT,
    },
    ("GET", "/v1/rl/conversations"): {
        "limit": {"type": "integer", "minimum": 1, "maximum": 200, "default": 30},
        "user": _TEXT,
        "state": {"type": "string", "enum": [state.value for state in State]},
        "score": {"type": "string", "enum": ["-1", "0", "1"]},
        "kind": {"type": "string", "enum": [*conversations.KINDS]},
        "q": {"type": "string", "maxLength": 200},
        "before": _TEXT,
    },
    ("GET", "/v1/rl/conversations/{id}"): {
        "limit": {"type": "integer", "minimum": 1, "maximum": 200, "default": 20},
        "before": _TEXT,
    },
    ("GET", "/v1/rl/overruled"): {
        "limit": {"type": "integer", "minimum": 1, "maximum": 200, "default": 50},
        "before": {"type": "number"},
    },
    ("GET", "/v1/rl/hints"): {"user": _TEXT},
    ("GET", "/v1/rl/episodes"): {
        "limit": {"type": "integer", "minimum": 1, "maximum": 500, "default": 50},
        "state": {"type": "string", "enum": [state.value for state in EpisodeState]},
        "task": _TEXT,
        "before": _TEXT,
    },
    **{(method, PICTURE): {"when": {"type": "string", "enum": [*episodes.WHEN]}} for method in ("GET", "PUT")},
    ("GET", "/v1/rl/export"): {
        "user": _TEXT,
        "session": _TEXT,
        "side": {"type": "boolean"},
        "to": _TEXT,
        "form": {"type": "string", "enum": [form.value for form in ExportForm]},
    },
    ("GET", "/v1/rl/versions"): {
        "limit": {"type": "integer", "minimum": 1, "maximum": 500, "default": 50},
        "before": _TEXT,
        "learned": {"type": "boolean"},
    },
    ("POST", "/v1/rl/training/leases/{id}/files/{name}"): {"offset": {"type": "integer", "minimum": 0, "default": 0}},
    ("GET", "/v1/responses/{id}"): {"stream": {"type": "boolean"}},
    ("GET", "/v1/responses/{id}/input_items"): {
        "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
        "order": {"type": "string", "enum": ["asc", "desc"], "default": "desc"},
        "after": _TEXT,
    },
}
_HEADERS = {
    "X-Session-Id": "The conversation this request belongs to.",
    "X-Turn-Type": "`main` (may be learned from) or `side`.",
    "X-Session-Done": "`true` if this is the conversation's last turn.",
    "X-User-Id": "Who speaks.",
    "X-Agent-Id": "Which agent asks.",
    "X-Episode-Id": "The episode this request is a step of.",
    "X-Episode-Step": "Which step, from 0; left out, the next one.",
    "X-Episode-Task": "The task, if the episode begins with this request.",
    "X-Episode-Group": "The group of episodes of the task that it is compared with.",
    "X-Episode-Group-Size": "How many episodes the group holds.",
    "X-Episode-Seed": "The seed of the attempt.",
    "X-Episode-Environment": "The environment or setting.",
    "X-Episode-Observation": "The kind of what the request shows: text, terminal, tool, screen.",
}
_ANSWER_HEADERS = {
    TURN: "The turns of the answers.",
    VERSION: "The weights that answered.",
    IGNORED: "The fields of the request that had no effect.",
    PLACEHOLDERS: "How many images, files and blocks stood in the prompt by name, by kind.",
}
_NAME: Json = {"type": ["string", "integer", "null"], "maxLength": MOST_CHARS}
_WORD: Json = {"type": ["string", "null"], "maxLength": MOST_EPISODE_CHARS}
_COUNT: Json = {"type": ["integer", "null"], "minimum": 0}
_PNG: dict[str, Json] = {"image/png": {"schema": {"type": "string", "contentMediaType": "image/png"}}}
_EPISODE: Json = {
    "type": ["object", "null"],
    "properties": {
        **{name: _WORD for name in ("id", "task", "group", "environment", "observation")},
        **{name: _COUNT for name in ("step", "group_size", "seed")},
    },
}
_FACTS: dict[str, Json] = {
    "episode": _EPISODE,
    "session_id": _NAME,
    "user": _NAME,
    "prompt_cache_key": _NAME,
    "turn_type": {"type": ["string", "null"], "maxLength": MOST_CHARS},
    "session_done": {"type": ["boolean", "string", "integer", "null"], "maxLength": MOST_CHARS},
    "metadata": {"type": ["object", "null"], "properties": {"session_id": _NAME, "user_id": _NAME}},
}  # the session fields of a body, in every API; read from the body as it was sent
_OPENAI_ERROR: Json = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": _TEXT,
                "type": _TEXT,
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
                "fix": _TEXT,
            },
        }
    },
}
_ANTHROPIC_ERROR: Json = {
    "type": "object",
    "required": ["type", "error"],
    "properties": {
        "type": {"const": "error"},
        "error": {
            "type": "object",
            "required": ["type", "message"],
            "properties": {"type": _TEXT, "message": _TEXT},
        },
    },
}


def described(routes: Sequence[Route]) -> dict[str, Json]:
    """The description of these routes."""
    schemas, found = msgspec.json.schema_components(
        [BODIES[route[:2]] for route in routes if route[:2] in BODIES],
        ref_template="#/components/schemas/{name}",
    )
    for (kind, name), words in _NARROWER.items():
        if kind in found:
            _narrow(found[kind]["properties"][name], words)
    for kind in _SAYING:
        if kind in found:
            found[kind]["properties"].update(_FACTS)
    names = iter(schemas)
    paths: dict[str, dict[str, Json]] = {}
    for method, path, answering, right in routes:
        body: Json = next(names) if (method, path) in BODIES else None
        paths.setdefault(_plain(path), {})[method.lower()] = _operation(method, path, answering, right, body)
    components: dict[str, Json] = {**found, "Error": _OPENAI_ERROR, "AnthropicError": _ANTHROPIC_ERROR}
    return {
        "openapi": "3.1.0",
        "info": {"title": "OpenClaw-RL", "version": __version__, "description": "Serving that learns."},
        "security": [{"bearer": []}, {"key": []}],
        "paths": dict(paths),
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def _narrow(schema: dict[str, Json], words: Mapping[str, Json]) -> None:
    """Adds the keywords to the schema, or to the part of it that is not null."""
    options = schema.get("anyOf")
    held = [item for item in options if isinstance(item, dict)] if isinstance(options, list) else [schema]
    next(item for item in held if item.get("type") != "null").update(words)


def _operation(method: str, path: str, answering: Answering, right: Right | None, body: Json) -> dict[str, Json]:
    summary, _, more = _doc(answering).partition("\n\n")
    found: dict[str, Json] = {
        "operationId": f"{method.lower()}{re.sub(r'[^a-zA-Z0-9]+', '_', _plain(path)).rstrip('_')}",
        "summary": summary,
        "parameters": _parameters(method, path),
        "responses": _responses(method, path),
    }
    if more:
        found["description"] = more
    if body is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    if (method, path) == ("PUT", PICTURE):
        found["requestBody"] = {"required": True, "content": _PNG}
    if right is None:
        found["security"] = []
    return found


def _parameters(method: str, path: str) -> list[Json]:
    found: list[Json] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"{(\w+)", path)
    ]
    for name, schema in _QUERIES.get((method, path), {}).items():
        found.append({"name": name, "in": "query", "schema": schema})
    headers = _HEADERS if path in ANSWERING else {}
    if path == "/v1/rl/session_done":
        headers = {"X-Session-Id": _HEADERS["X-Session-Id"]}
    for name, what in headers.items():
        found.append({"name": name, "in": "header", "schema": _TEXT, "description": what})
    return found


def _responses(method: str, path: str) -> dict[str, Json]:
    good: dict[str, Json] = {"application/json": {"schema": {"type": "object"}}}
    if path in ANSWERING:
        good["text/event-stream"] = {"schema": _TEXT}
    if path == "/v1/rl/export":
        good = {"application/x-ndjson": {"schema": _TEXT}}
    if path == "/v1/rl/events":
        good = {"text/event-stream": {"schema": _TEXT}}
    if (method, path) == ("GET", PICTURE):
        good = _PNG
    if path == "/metrics":
        good = {"text/plain": {"schema": _TEXT}}
    name = "AnthropicError" if path.startswith("/v1/messages") else "Error"
    bad: Json = {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
    done: dict[str, Json] = {"description": "Done.", "content": good}
    if path in ANSWERING:
        done["headers"] = {name: {"schema": _TEXT, "description": what} for name, what in _ANSWER_HEADERS.items()}
    return {
        "200": done,
        "4XX": {"description": "Something about the request is wrong; the message says what to do.", "content": bad},
        "5XX": {"description": "Something about the server is wrong.", "content": bad},
    }


def _plain(path: str) -> str:
    """The path without patterns: `/v1/models/{id:.+}` is `/v1/models/{id}` here."""
    return re.sub(r"{(\w+):[^}]*}", r"{\1}", path)


def _doc(what: Callable[..., object]) -> str:
    return (what.__doc__ or "").strip()
