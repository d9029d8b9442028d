"""The owner's verdict on a turn: replaced, excluded from learning, and exported as judge training data."""

from __future__ import annotations

import msgspec
from aiohttp import web

from openclaw_rl.core.ledger import DropReason, State
from openclaw_rl.core.message import Json
from openclaw_rl.errors import RequestError
from openclaw_rl.serve.answers import turn_of_response
from openclaw_rl.serve.apis.chat.wire import parsed
from openclaw_rl.serve.control.explain import DROPPED
from openclaw_rl.serve.control.hints import MOST_HINT
from openclaw_rl.serve.control.routes import answer, number_of
from openclaw_rl.serve.control.views import overrule_json
from openclaw_rl.serve.parts import ServeParts
from openclaw_rl.serve.request.names import check_name
from openclaw_rl.store.db import Store
from openclaw_rl.store.rows import TurnRow
from openclaw_rl.store.tables.overrules import SAID, Overrule
from openclaw_rl.store.tables.seen import last_words

MOST_HINTS = 8
MOST_ROWS = 200
NOTED = "a version has learned from this turn already: what you said is kept for the judge, and changes no version"
JUDGED = "the turn is judged as you say, and learned from as that"


class VerdictBody(msgspec.Struct):
    """The body of PUT /v1/rl/turns/{id}/verdict: whether the reply was good (1), neither (0) or bad (-1), and hints."""

    score: int
    hints: list[str] = []


async def verdict(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Replaces the judge's verdict on a turn. The judge's verdict is kept, too.

    A turn that waits, or was dropped because it had no signal, is learned from with the new verdict.
    """
    name = turn_of_response(request.match_info["id"])
    body = parsed(await request.read(), VerdictBody)
    if body.score not in (-1, 0, 1):
        raise RequestError(f"score is {body.score}", fix="send -1, 0 or 1", param="score")
    if len(body.hints) > MOST_HINTS or not all(text.strip() for text in body.hints):
        raise RequestError("the hints are too many or empty", fix=f"send up to {MOST_HINTS} texts", param="hints")
    for text in body.hints:
        check_name(text, "hints", most=MOST_HINT)
    hints = tuple(text.strip() for text in body.hints)
    row = await _row(parts, name)
    try:
        is_taught = await parts.store.overrules.add(Overrule(name, parts.clock(), key_name, body.score, hints))
    except ValueError as problem:
        raise RequestError(str(problem), fix="choose a main turn of a conversation", status=409) from problem
    return answer(
        {
            "turn": name,
            "score": body.score,
            "hints": [*hints],
            "is_learned_from": is_taught,
            "said": JUDGED if is_taught else _noted(row),
        }
    )


def _noted(row: TurnRow) -> str:
    """What happens to the owner's verdict if the turn keeps its own."""
    if row.reason is None or row.state is not State.DROPPED:
        return NOTED
    return f"what you said is kept for the judge; the turn teaches nothing all the same: {DROPPED[row.reason]}"


async def exclude(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Excludes a turn from all learning. If a version has learned from it, forget it instead (/v1/rl/forget)."""
    name = turn_of_response(request.match_info["id"])
    row = await _row(parts, name)
    is_done = await parts.store.drop(name, DropReason.EXCLUDED)
    if not is_done and row.trained_version is not None:
        raise RequestError(
            f"version {row.trained_version} has learned from turn {name}",
            fix="forget the turn: the versions that learned from it are made again without it",
            status=409,
            code="already_learned",
        )
    return answer({"turn": name, "excluded": is_done})


async def overruled(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Owners' verdicts that replaced the judge's, newest first, with what was judged: training data for a judge.

    `limit` and `before` (a moment, as the last answer gave it) choose which.
    """
    limit = number_of(request.query.get("limit", "50"), "limit", most=MOST_ROWS)
    given = request.query.get("before")
    try:
        before = None if given is None else float(given)
    except ValueError:
        raise RequestError(f"before is {given!r}", fix="send a number of seconds", param="before") from None
    return answer(await overruled_json(parts.store, limit=limit, before_s=before))


async def overruled_json(store: Store, *, limit: int, before_s: float | None = None) -> dict[str, Json]:
    """Owners' verdicts that replaced the judge's, newest first, each with its turn; `before` is where to continue."""
    found: list[Json] = []
    rows = await store.overrules.newest(limit=limit, before_s=before_s)
    for said in rows:
        row = await store.row(said.turn)
        if row is None:
            continue
        words: dict[str, Json] = {"asked": last_words(row.turn), "reply": row.turn.reply.text}
        after = row.next_state
        words["next_state"] = None if after is None or after.text in SAID.values() else after.text
        words["source"] = None if after is None else after.source.value
        found.append(overrule_json(said) | words)
    return {"overruled": found, "before": rows[-1].at_s if len(rows) == limit else None}


async def _row(parts: ServeParts, name: str) -> TurnRow:
    row = await parts.store.row(name)
    if row is None:
        raise RequestError(f"there is no turn {name}", fix="GET /v1/rl/turns lists them", status=404, param="id")
    return row
