"""Conversations a page at a time, searched a slice at a time, and one of them turn by turn."""

from __future__ import annotations

import asyncio
import time

from aiohttp import web

from openclaw_rl.core.ledger import State
from openclaw_rl.core.message import Json
from openclaw_rl.errors import RequestError
from openclaw_rl.serve.control.routes import answer, number_of
from openclaw_rl.serve.control.views import overrule_json, turn_json
from openclaw_rl.serve.parts import ServeParts
from openclaw_rl.serve.request.names import check_name
from openclaw_rl.store.rows import TurnRow
from openclaw_rl.store.tables.overrules import Overrule
from openclaw_rl.store.tables.seen import SessionFilter, SessionLine, last_words

MOST_ROWS = 200
LOOK_S = 0.4  # one search; a client that wants to look further back asks again, as the page does
MOST_WORDS = 240  # characters of a line
MOST_SEARCHED = 200  # characters that are searched for
SCORES = {"-1": -1, "0": 0, "1": 1}
KINDS = {"talk": False, "attempt": True}  # whether it is an attempt at a task


async def conversations(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Conversations, newest first; `user`, `state`, `score`, `q` (words in them), `limit` and `before` select them.

    `kind` selects `talk` or `attempt` (at a task). A search looks back for about half a second.
    `before` in the answer is where to continue; null if everything was searched. `looked_to` is how far back that is.
    """
    limit = number_of(request.query.get("limit", "30"), "limit", most=MOST_ROWS)
    wanted, at = _wanted(request), _cursor(request.query.get("before"))
    found: list[SessionLine] = []
    end_s = time.monotonic() + LOOK_S
    while True:
        begin_s = time.monotonic()
        part = await parts.store.seen.sessions(wanted, limit=limit - len(found), before=at)
        found += part.found
        at = part.at
        if at is None or len(found) >= limit or time.monotonic() > end_s:
            break
        await asyncio.sleep(time.monotonic() - begin_s)  # as long as reading took others have the thread
    lines: list[Json] = [_line(one) for one in found]
    return answer(
        {
            "conversations": lines,
            "before": None if at is None else f"{at[0]!r},{at[1]}",
            "looked_to": None if at is None else at[0],
        }
    )


async def conversation(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """One conversation turn by turn, oldest first: the newest `limit` turns, or those before `before` (a turn's id)."""
    name, before = request.match_info["id"], request.query.get("before")
    limit = number_of(request.query.get("limit", "20"), "limit", most=MOST_ROWS)
    check_name(before, "before")
    ids = await parts.store.seen.turn_ids(name, limit=limit, before=before)
    if not ids and before is None:
        raise RequestError(
            f"there is no conversation {name}", fix="GET /v1/rl/conversations lists them", status=404, param="id"
        )
    found: list[Json] = []
    for turn in reversed(ids):
        row = await parts.store.row(turn)
        if row is not None:
            found.append(turn_shown(row, await parts.store.overrules.of_turn(turn)))
    return answer({"id": name, "turns": found, "before": ids[-1] if len(ids) == limit else None})


def turn_shown(row: TurnRow, overruled: list[Overrule]) -> dict[str, Json]:
    """A turn as the page shows it: the last message instead of the whole request, and its owner's verdicts."""
    body = turn_json(row)
    del body["messages"], body["tools"], body["spans"]
    body["asked"] = last_words(row.turn)
    body["system"] = next((item.text for item in row.turn.messages if item.role.value == "system"), None)
    body["overruled"] = [overrule_json(one) for one in overruled]
    return body


def _line(one: SessionLine) -> dict[str, Json]:
    return {
        "id": one.id,
        "user": one.user,
        "agent": one.agent,
        "seen_at": one.seen_s,
        "is_open": one.is_open,
        "turns": one.turns,
        "states": dict(one.states),
        "corrected": one.corrected,
        "asked": one.asked[:MOST_WORDS],
        "said": one.said[:MOST_WORDS],
        "episode": one.episode or None,
    }


def _wanted(request: web.Request) -> SessionFilter:
    query = request.query
    words = query.get("q", "").strip()
    check_name(words, "q", most=MOST_SEARCHED)
    state, score, kind = (query.get(name) or None for name in ("state", "score", "kind"))
    if state is not None and state not in set(State):
        raise RequestError(f"state is {state!r}", fix=f"use one of {', '.join(State)}", param="state")
    if score is not None and score not in SCORES:
        raise RequestError(f"score is {score!r}", fix="send -1, 0 or 1", param="score")
    if kind is not None and kind not in KINDS:
        raise RequestError(f"kind is {kind!r}", fix=f"use one of {', '.join(KINDS)}", param="kind")
    return SessionFilter(
        user=query.get("user") or None,
        state=None if state is None else State(state),
        score=None if score is None else SCORES[score],
        words=words,
        is_attempt=None if kind is None else KINDS[kind],
    )


def _cursor(text: str | None) -> tuple[float, str] | None:
    if text is None:
        return None
    moment, _, name = text.partition(",")
    try:
        return float(moment), name
    except ValueError:
        raise RequestError(f"before is {text!r}", fix="send it as the last answer gave it", param="before") from None
