"""The routes of the learning loop: feedback, the end of a session, turns, versions, roll back."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from aiohttp import web

from openclaw_rl.core.ledger import State
from openclaw_rl.core.message import Json
from openclaw_rl.core.next_state import Feedback
from openclaw_rl.core.version import PolicyVersion, parse_version
from openclaw_rl.errors import RequestError
from openclaw_rl.serve.answers import turn_of_response
from openclaw_rl.serve.apis.chat.wire import parsed
from openclaw_rl.serve.control.views import lesson_json, overrule_json, turn_json, turn_line, versions_json
from openclaw_rl.serve.parts import ServeParts
from openclaw_rl.serve.request.names import check_name
from openclaw_rl.store.tables.seen import last_words

_MOST_ROWS = 500
_MOST_SOURCES = 50  # turns of one version that are shown
_MOST_WORDS = 240  # characters of what was asked or said
_MOST_DIGITS = 9  # Python reads no number of thousands of digits
_SESSION_HEADERS = ("x-session-id", "x-session-affinity", "session_id")


class FeedbackBody(msgspec.Struct):
    """The body of POST /v1/feedback."""

    score: int
    session_id: str | None = None
    response_id: str | None = None
    text: str | None = None


class RollbackBody(msgspec.Struct):
    """The body of POST /v1/rl/rollback."""

    version: str | int


async def feedback(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """A thumb up or down on a turn, or on the newest of a session; it outranks the judge."""
    body = parsed(await request.read(), FeedbackBody)
    if body.score not in (-1, 0, 1):
        raise RequestError(f"score is {body.score}", fix="send -1, 0 or 1", param="score")
    check_name(body.response_id, "response_id")
    check_name(body.session_id, "session_id")
    turn = await _turn_meant(parts, body, key_name)
    await parts.control.feedback(Feedback(turn, body.score, body.text, parts.clock()))
    return answer({"turn": turn, "score": body.score})


async def session_done(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Ends the session named in the path or, if the path names none, in the headers."""
    session = request.match_info.get("id") or next(
        (request.headers[name] for name in _SESSION_HEADERS if name in request.headers), None
    )
    if not session:
        raise RequestError("no session is named", fix="send its name in the header X-Session-Id", param="X-Session-Id")
    await parts.control.session_done(parts.control.session_name(key_name, session), "ended by the client")
    return answer({"session": session, "done": True})


async def status(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """The state of the server, its stages and its store."""
    return answer(dict(await parts.control.status()))


async def turns(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Turns, newest first; `limit`, `session`, `state` and `before` (the id of the last turn so far) select them."""
    query = request.query
    limit = number_of(query.get("limit", "50"), "limit", most=_MOST_ROWS)
    try:
        state = State(query["state"]) if "state" in query else None
    except ValueError:
        raise RequestError(
            f"state is {query['state']!r}", fix=f"use one of {', '.join(State)}", param="state"
        ) from None
    session = parts.control.session_name(key_name, query["session"]) if "session" in query else None
    rows = await parts.store.rows(limit=limit, session=session, state=state, before=query.get("before"))
    before = rows[-1].turn.id if len(rows) == limit else None
    return answer({"turns": [turn_line(row) for row in rows], "before": before})


async def turn(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """One turn with all its facts."""
    name = turn_of_response(request.match_info["id"])
    row = await parts.store.row(name)
    if row is None:
        raise RequestError(
            f"there is no turn {name}",
            fix="`openclaw-rl turns` lists them, and so does GET /v1/rl/turns",
            status=404,
            param="id",
        )
    samples = await parts.store.effects.samples([name])
    lesson: Json = lesson_json(samples[0], row.turn, parts.renderer) if samples else None
    overruled: list[Json] = [overrule_json(said) for said in await parts.store.overrules.of_turn(name)]
    return answer(turn_json(row) | {"lesson": lesson, "overruled": overruled})


async def versions(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """The newest versions, oldest first, and which are served and pinned; `limit` and `before` select them.

    `before` is a version to page on from. With `learned=true` also what each was to learn.
    """
    query = request.query
    limit, name = number_of(query.get("limit", "50"), "limit", most=_MOST_ROWS), query.get("before")
    before = None if name is None else version_named(name, "before")
    is_asked = query.get("learned") == "true"
    return answer(await versions_json(parts.store, limit=limit, before=before, with_learned=is_asked))


async def version(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """The turns that a version learned from, in words: what was asked, what followed, and how that was judged."""
    row = await parts.store.version(named := version_named(request.match_info["id"]))
    if row is None:
        raise _no_version(named)
    found: list[Json] = []
    for name in row.turns[:_MOST_SOURCES]:
        held = await parts.store.row(name)
        if held is not None:
            after = None if held.next_state is None else held.next_state.text[:_MOST_WORDS]
            words: dict[str, Json] = {"asked": last_words(held.turn)[:_MOST_WORDS], "next_state": after}
            found.append(turn_line(held) | words | {"is_step": held.turn.step is not None})
    return answer({"version": str(named), "turns": found, "more": max(0, len(row.turns) - _MOST_SOURCES)})


async def rollback(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Serves an earlier version again."""
    body = parsed(await request.read(), RollbackBody)
    version = version_named(body.version)
    row = await parts.store.version(version)
    if row is None and not (version.is_base and await parts.store.last_number(version.scope)):
        raise _no_version(version)
    await parts.control.rollback(version)
    return answer({"version": str(version)})


def _no_version(version: PolicyVersion) -> RequestError:
    return RequestError(
        f"there is no version {version}",
        fix="`openclaw-rl versions` lists them, and so does GET /v1/rl/versions",
        status=404,
        param="version",
    )


def version_named(name: str | int, param: str = "version") -> PolicyVersion:
    """The version of this name. Raises RequestError."""
    try:
        return parse_version(str(name))
    except ValueError:
        raise RequestError(
            f"{param} is {name!r}", fix="send a number, or a name such as shared.3", param=param
        ) from None


def answer(body: Mapping[str, Json]) -> web.Response:
    """A JSON answer."""
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")


def number_of(text: str, name: str, *, most: int) -> int:
    """The number in a query. Raises RequestError if it is not a number or out of range."""
    if not text.isdecimal() or len(text) > _MOST_DIGITS or not 1 <= int(text) <= most:
        raise RequestError(f"{name} is {text!r}", fix=f"send a number from 1 to {most}", param=name)
    return int(text)


async def _turn_meant(parts: ServeParts, body: FeedbackBody, key_name: str) -> str:
    if body.response_id:
        name = turn_of_response(body.response_id)
        found = await parts.store.turn(name)
        where, value, param = "response", body.response_id, "response_id"
    elif body.session_id:
        found = await parts.store.last_turn(parts.control.session_name(key_name, body.session_id))
        where, value, param = "session with a turn", body.session_id, "session_id"
    else:
        raise RequestError("feedback names no turn", fix="send response_id or session_id", param="response_id")
    # Another user's turn is reported as unknown: only the owner's feedback teaches.
    if found is None or parts.control.session_name(key_name, found.session) != found.session:
        raise RequestError(
            f"there is no {where} {value}", fix="send the id of an answer of this server", status=404, param=param
        )
    return found.id
