"""Forgetting over HTTP: a preview, the order itself, and its progress."""

from __future__ import annotations

import msgspec
from aiohttp import web

from openclaw_rl.core.message import Json
from openclaw_rl.errors import ConfigError, RequestError
from openclaw_rl.serve.apis.chat.wire import parsed
from openclaw_rl.serve.control.routes import answer
from openclaw_rl.serve.parts import ForgettingControl, ServeParts
from openclaw_rl.store.forget.selection import ForgetTarget


class ForgetBody(msgspec.Struct):
    """The body of POST /v1/rl/forget: one of `session`, `user`, `turn`, `episode` and `before` (seconds).

    With `dry_run` it is only counted. With `records`, files exported outside the home folder are cleaned too.
    """

    session: str | None = None
    user: str | None = None
    turn: str | None = None
    before: float | None = None
    episode: str | None = None
    dry_run: bool = False
    records: bool = False


async def forget(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Forgets a session, a user, a turn, an episode or all before a time; answers once the rows are erased.

    The rest (files, weights) is done meanwhile: GET the same path to see how far it has come.
    """
    body = parsed(await request.read(), ForgetBody)
    named = {"session": body.session, "user": body.user, "turn": body.turn, "before": body.before}
    named["episode"] = body.episode
    given = [name for name, value in named.items() if value is not None]
    if len(given) != 1:
        raise RequestError(
            f"{' and '.join(given) or 'nothing'} is named to be forgotten",
            fix="send one of session, user, turn, episode and before",
        )
    what = ForgetTarget(
        session=body.session, user=body.user, turn=body.turn, before_s=body.before, episode=body.episode
    )
    try:
        found: dict[str, Json] = dict(await _forgetting(parts).preview(what))
    except ConfigError as problem:
        raise RequestError(problem.problem, fix=problem.fix, status=404, param=given[0]) from problem
    is_nothing = not any(found.values())
    name = None if body.dry_run or is_nothing else await _forgetting(parts).begin(what, body.records)
    if name is not None:
        parts.memory.clear()  # cached answers may contain its words
    return answer({"id": name, "goes": found, "is_nothing": is_nothing})


async def standing(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Everything that was forgotten, oldest first, each with its progress and its certificate."""
    return answer({"forgettings": [dict(item) for item in await _forgetting(parts).standing()]})


def _forgetting(parts: ServeParts) -> ForgettingControl:
    if parts.forgetting is None:
        raise RequestError("this server forgets nothing", status=501)
    return parts.forgetting
