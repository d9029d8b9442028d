"""The hints kept for users: a client lists, adds, edits, retires and removes them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from aiohttp import web

from openclaw_rl.core.hint import Hint, HintSource, HintState, KeptHint
from openclaw_rl.core.message import Json
from openclaw_rl.errors import RequestError
from openclaw_rl.serve.apis.chat.wire import parsed
from openclaw_rl.serve.control.routes import answer
from openclaw_rl.serve.parts import ServeParts
from openclaw_rl.serve.request.names import check_name
from openclaw_rl.store.tables.effects import TaughtWish
from openclaw_rl.wording.likeness import asks_alike, may_oppose

MOST_HINT = 4096  # characters; a hint is in every prompt of its user


class AddBody(msgspec.Struct):
    """The body of PUT /v1/rl/hints. Without a user the key's owner is meant."""

    text: str
    user: str | None = None


class ChangeBody(msgspec.Struct):
    """The body of PUT /v1/rl/hints/{id}: other words, or whether it is in use."""

    text: str | None = None
    state: str | None = None


async def listed(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """All kept hints, or those of `user`, each with its tokens, the hints that it may contradict, and who learned it.

    `learned_by` is the served version's nearest ancestor that learned the same of the same user; null for none.
    """
    user = request.query.get("user")
    book = parts.store.hints
    kept = await (book.everyone() if user is None else book.of_user(user))
    taught = await parts.store.effects.taught() if kept else []
    rows: list[Json] = [
        hint_json(item)
        | {"tokens": len(parts.renderer.encode(item.text)), "is_followed": not item.is_in_use and item.is_wished}
        | {"opposes": [other.id for other in kept if _oppose(item, other)], "learned_by": _learner(item, taught)}
        for item in kept
    ]
    return answer({"hints": rows, "carry": "" if parts.owner is None else parts.owner.carry})


async def add(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Adds a hint; if a kept hint says the same, the new one replaces it."""
    body = parsed(await request.read(), AddBody)
    check_name(body.user, "user")
    hint = Hint(_words(body.text), HintSource.OWNER)
    user = key_name if body.user is None else body.user
    kept = await parts.store.hints.adopt(user, hint, at_s=parts.clock(), why="added by hand")
    return answer(hint_json(kept))


async def change(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Changes a hint's words, retires it, or uses it again."""
    name, book = request.match_info["id"], parts.store.hints
    body = parsed(await request.read(), ChangeBody)
    held = await book.get(name)
    if held is None:
        raise _unknown(name)
    if body.state not in (None, *HintState):
        raise RequestError(f"state is {body.state!r}", fix=f"use one of {', '.join(HintState)}", param="state")
    if body.text is not None or (body.state == HintState.IN_USE and not held.is_in_use):
        await book.edit(name, held.text if body.text is None else _words(body.text), at_s=parts.clock())
    if body.state == HintState.RETIRED:
        await book.retire(name, why="retired by hand", at_s=parts.clock())
    kept = await book.get(name)
    if kept is None:
        raise _unknown(name)
    return answer(hint_json(kept))


async def remove(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Forgets a hint."""
    name = request.match_info["id"]
    if not await parts.store.hints.remove(name):
        raise _unknown(name)
    return answer({"id": name, "removed": True})


def hint_json(hint: KeptHint) -> dict[str, Json]:
    """A kept hint as people see it."""
    return {
        "id": hint.id,
        "user": hint.user,
        "text": hint.text,
        "state": hint.state.value,
        "why": hint.why,
        "needs_prompt": hint.needs_prompt,
        "source": hint.source.value,
        "turn": hint.turn,
        "times": hint.times,
        "made_at": hint.made_s,
        "changed_at": hint.changed_s,
    }


def _oppose(one: KeptHint, other: KeptHint) -> bool:
    is_both = one.user == other.user and one.id != other.id and one.is_in_use and other.is_in_use
    return is_both and may_oppose(one.text, other.text)


def _learner(hint: KeptHint, taught: Sequence[TaughtWish]) -> str | None:
    same = (one for one in taught if one.user == hint.user and asks_alike(one.hint, hint.text))
    return next((str(one.version) for one in same), None)


def _words(text: str) -> str:
    if not text.strip():
        raise RequestError("the hint is empty", fix="send one to three sentences", param="text")
    check_name(text, "text", most=MOST_HINT)
    return text.strip()


def _unknown(name: str) -> RequestError:
    return RequestError(
        f"there is no hint {name}",
        fix="`openclaw-rl hints list` shows them, and so does GET /v1/rl/hints",
        status=404,
        param="id",
    )
