"""Whether the model is learning, in one answer, and a stream of events that says when to look again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

import msgspec
from aiohttp import web

from openclaw_rl.core.finding import many
from openclaw_rl.core.message import Json
from openclaw_rl.core.version import SHARED
from openclaw_rl.serve.control.views import versions_json
from openclaw_rl.serve.parts import Remembered, ServeParts
from openclaw_rl.store.tables.effects import TaughtWish

WEEKS = 8
VERSIONS = 20
MOST_WORDS, MOST_SAID = 300, 90  # characters of what somebody said: where it is quoted, and in the headline
EVERY_S = 1.0  # between looks whether anything changed
QUIET_S = 15.0  # a stream without events sends a comment, so that proxies keep it open
# The parts of the status that the first view shows; the rest is at /v1/rl/status.
STATUS = ("story", "diagnosis", "problems", "is_settled", "learns", "ledger")


async def learning(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """What was learned recently and whether it lasted, corrections a week, what waits and why, versions, and the cost.

    Computed once for all watchers, and at most every other second while things change.
    """
    remembered = parts.memory.setdefault("learning", Remembered(2.0))
    key = (await parts.store.seen.stamp(), parts.store.forgettings.begun, parts.store.seen.not_stored)
    body = await remembered.of(key, lambda: _learning(parts))
    return web.Response(body=body, content_type="application/json")


async def events(request: web.Request, parts: ServeParts, key_name: str) -> web.StreamResponse:
    """Server-sent events: `changed`, at most once a second, when a commit succeeded or failed."""
    response = web.StreamResponse(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
    response.content_type = "text/event-stream"
    await response.prepare(request)
    remembered = parts.memory.setdefault("stamp", Remembered(EVERY_S))
    sent, sent_s = b"", time.monotonic()
    while not parts.is_stopping():
        stamp = await remembered.of(int(time.monotonic()), lambda: _stamp(parts))
        now_s = time.monotonic()
        line = b"event: changed\ndata: " + stamp + b"\n\n" if stamp != sent else b": still here\n\n"
        if stamp != sent or now_s - sent_s > QUIET_S:
            async with asyncio.timeout(parts.settings.stalled_s):
                await response.write(line)
            sent, sent_s = stamp, now_s
        await asyncio.sleep(EVERY_S)
    return response


async def _stamp(parts: ServeParts) -> bytes:
    turns, commits = await parts.store.seen.stamp()
    return msgspec.json.encode({"turns": turns, "commits": commits, "not_stored": parts.store.seen.not_stored})


async def _learning(parts: ServeParts) -> bytes:
    status = await parts.control.status()
    weeks = await parts.store.seen.weeks(now_s=parts.clock(), most=WEEKS)
    twice, asked = await parts.store.effects.asked_twice()
    taught = await parts.store.effects.taught()
    train, judge = status.get("train"), status.get("judge")
    found: dict[str, Json] = {
        **{name: status[name] for name in STATUS if name in status},
        "not_stored": parts.store.seen.not_stored,
        "doing": _of(train, "doing"),
        "why_waiting": _of(train, "why_waiting"),
        "left_s": _of(train, "left_s"),
        "ready": _of(train, "ready"),
        "judge_error": _of(judge, "last_error"),
        "learned": [wish_json(one) for one in taught],
        "weeks": [{"begin": one.begin_s, "judged": one.judged, "corrected": one.corrected} for one in weeks],
        "asked_twice": {"again": twice, "of": asked},
        "spent": dict(await parts.store.seen.spent()),
        "carry": "" if parts.owner is None else parts.owner.carry,
        "model": parts.models[0],
        **await versions_json(parts.store, limit=VERSIONS, with_learned=True),
    }
    found["headline"] = headline(found, taught, sum(week.corrected for week in weeks))
    return msgspec.json.encode(found)


def headline(found: Mapping[str, Json], taught: Sequence[TaughtWish], corrected: int) -> str:
    """Whether it is learning, in a sentence or two. `corrected` counts the replies of the last weeks that were."""
    ledger = found.get("ledger")
    if why := found.get("not_stored"):
        return f"No: what was said last could not be stored. {str(why)[:1].upper()}{str(why)[1:]}."
    if found.get("frozen_since"):
        return "Learning is paused by your order."
    if found.get("learns") is False:
        return "No: the server was started without learning. What is said is stored only."
    if taught:
        return f"Yes. It has learned {_learned(taught)}"
    if back := _went_back(found):
        return f"You went back to {back}: what later versions learned is not in the answers now."
    if isinstance(ledger, dict) and not ledger.get("main"):
        return "Not yet: nobody has talked to it. Point a program at the server, or try it on its page."
    if not corrected:
        return "Nothing to learn yet: no reply was corrected in the last weeks."
    return f"Not yet: nothing is learned so far from {many(corrected, 'correction')} in the last weeks."


def _learned(taught: Sequence[TaughtWish]) -> str:
    """What was learned, the newest in its user's words, and whether it held."""
    text = " ".join(taught[0].words.split()).removesuffix(".")
    words = f"“{text if len(text) <= MOST_SAID else text[: MOST_SAID - 1].rstrip() + '…'}”"
    broken = sum(one.again > 0 for one in taught)
    if len(taught) == 1:
        held = "nobody has reacted to a reply since" if not taught[0].since else "nobody had to ask for it again"
        return f"{words}, and it was asked for again since." if broken else f"{words}, and {held}."
    again = f"{broken} of them {'was' if broken == 1 else 'were'}" if broken else "None of them had to be"
    return f"{len(taught)} wishes, the latest {words}. {again} asked for again since."


def _went_back(found: Mapping[str, Json]) -> str:
    """The served shared version if a later one passed the gate; empty if the newest is served."""
    rows = found.get("versions")
    live = [row for row in rows if isinstance(row, dict) and row["status"] == "live"] if isinstance(rows, list) else []
    shared = [row for row in live if row["scope"] == SHARED]
    served = next((row for row in shared if row["is_current"]), None)
    if served is None or served is shared[-1]:
        return ""
    return f"version {served['number']}" if served["number"] else "the base model"


def wish_json(wish: TaughtWish) -> dict[str, Json]:
    """Something that was learned, as people see it."""
    return {
        "words": wish.words[:MOST_WORDS],
        "hint": wish.hint[:MOST_WORDS],
        "user": wish.user,
        "learned_at": wish.learned_s,
        "version": str(wish.version),
        "turns": list(wish.turns),
        "asked": wish.asked,
        "since": wish.since,
        "again": wish.again,
        "again_turns": list(wish.again_turns),
    }


def _of(status: Json, name: str) -> Json:
    return status.get(name) if isinstance(status, dict) else None
