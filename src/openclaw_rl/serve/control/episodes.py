"""Episodes over HTTP: begun, each step reported, ended with an outcome, listed, and looked at turn by turn."""

from __future__ import annotations

import math
import secrets

import msgspec
from aiohttp import web

from openclaw_rl.core.episode import Episode, EpisodeEnd, EpisodeState, FailureClass
from openclaw_rl.core.message import Json, Role, message
from openclaw_rl.errors import RequestError
from openclaw_rl.serve.apis.chat.wire import parsed
from openclaw_rl.serve.control.routes import answer, number_of
from openclaw_rl.serve.control.views import episode_json, episode_line
from openclaw_rl.serve.parts import ServeParts
from openclaw_rl.serve.request.names import MOST_EPISODE_CHARS, check_name
from openclaw_rl.store.pictures import PictureName

_MOST_ROWS = 500
MOST_RUNS, MOST_TASKS, SHARES = 5000, 50, 20
_MOST_WHY = 4000
_MOST_SHOWN = 1_000_000  # characters of an observation
_MOST_DIGITS = 9
WHEN = ("before", "after")  # of a step
_PICTURE_HEADERS = {  # opened as a separate page it may do nothing; no browser caches it, since it may be forgotten
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


class EpisodeBody(msgspec.Struct):
    """The body of POST /v1/rl/episodes; if no `id` is sent, one is made."""

    task: str
    id: str | None = None
    group: str | None = None
    group_size: int | None = None
    seed: int | None = None
    environment: str = ""


class EpisodeStepBody(msgspec.Struct):
    """The body of POST /v1/rl/episodes/{id}/steps: a step's own reward, and what the environment showed after it."""

    step: int
    score: float | None = None
    observation: str | None = None


class EpisodeEndBody(msgspec.Struct):
    """The body of POST /v1/rl/episodes/{id}/end. `closes_group` says that no other episode of its group will begin."""

    outcome: float | None = None
    failure: str = FailureClass.NONE.value
    why: str = ""
    closes_group: bool = False


async def begin(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Begins an episode: its id is then sent with each chat request (X-Episode-Id).

    Repeating it with the same id and task changes nothing.
    """
    body = parsed(await request.read(), EpisodeBody)
    for name, value in (("id", body.id), ("task", body.task), ("group", body.group), ("environment", body.environment)):
        check_name(value, name, most=MOST_EPISODE_CHARS)
    given = body.id or f"ep-{secrets.token_hex(8)}"
    try:
        episode = Episode(
            id=parts.control.session_name(key_name, given),
            user=request.headers.get("X-User-Id", "").strip() or key_name,
            task=body.task,
            begun_s=parts.clock(),
            group=body.group or None,
            group_size=body.group_size,
            seed=body.seed,
            environment=body.environment,
        )
    except ValueError as problem:
        raise RequestError(str(problem), fix="send a task, and a group_size of at least 1") from problem
    return answer(episode_line(await parts.store.episodes.begin(episode)))


async def report_step(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Reports a step's own reward (`score`), or what the environment showed after it (`observation`)."""
    body = parsed(await request.read(), EpisodeStepBody)
    if body.score is not None and not math.isfinite(body.score):
        raise RequestError(f"score is {body.score}", fix="send a finite number", param="score")
    if body.step < 0:
        raise RequestError(f"step is {body.step}", fix="send a number from 0 on", param="step")
    check_name(body.observation, "observation", most=_MOST_SHOWN)
    shown = () if not body.observation else (message(Role.USER, body.observation),)
    name = await _name(request, parts, key_name)
    turns = await parts.store.episodes.report_step(name, body.step, score=body.score, shown=shown)
    return answer({"id": name, "step": body.step, "turns": list(turns)})


async def end(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Ends an episode with its outcome, or with the class of its failure; synced to disk when this answers.

    A failure of the environment or the infrastructure never reaches a reward.
    """
    body = parsed(await request.read(), EpisodeEndBody)
    check_name(body.why, "why", most=_MOST_WHY)
    if body.failure not in set(FailureClass):
        raise RequestError(f"failure is {body.failure!r}", fix=f"use one of {', '.join(FailureClass)}", param="failure")
    try:
        ended = EpisodeEnd(body.outcome, FailureClass(body.failure), body.why, body.closes_group)
    except ValueError as problem:
        raise RequestError(
            str(problem), fix="send the outcome as a number, or the class of the failure", param="outcome"
        ) from problem
    name = await _name(request, parts, key_name)
    return answer(episode_line(await parts.store.episodes.end(name, ended, at_s=parts.clock())))


async def listed(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Episodes, newest first; `limit`, `state`, `task` and `before` (the id of the last one so far) select them."""
    query = request.query
    limit = number_of(query.get("limit", "50"), "limit", most=_MOST_ROWS)
    state = query.get("state")
    if state is not None and state not in set(EpisodeState):
        raise RequestError(f"state is {state!r}", fix=f"use one of {', '.join(EpisodeState)}", param="state")
    rows = await parts.store.episodes.page(
        limit=limit,
        before=query.get("before"),
        state=None if state is None else EpisodeState(state),
        task=query.get("task"),
    )
    lines: list[Json] = [episode_line(row) for row in rows]
    return answer({"episodes": lines, "before": rows[-1].episode.id if len(rows) == limit else None})


async def runs(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Outcomes of attempts over time, by environment and by task: the newest few thousand, in equal shares."""
    rows = await parts.store.seen.runs(limit=MOST_RUNS)
    groups: dict[tuple[str, str], list[Json]] = {}
    for environment in dict.fromkeys(row[0] for row in rows):
        own = [row for row in rows if row[0] == environment]
        groups[environment, ""] = _shares(own)
        names = dict.fromkeys(row[1] for row in reversed(own))
        for task in list(names)[:MOST_TASKS]:
            groups[environment, task] = _shares([row for row in own if row[1] == task])
    found: list[Json] = [
        {"environment": environment, "task": task, "shares": shares} for (environment, task), shares in groups.items()
    ]
    return answer({"runs": found})


def _shares(rows: list[tuple[str, str, float, float | None, str]]) -> list[Json]:
    """The attempts in up to `SHARES` equal shares, oldest first: when, how many, their mean outcome, and failures."""
    size = max(1, -(-len(rows) // SHARES))
    found: list[Json] = []
    for at in range(0, len(rows), size):
        part = rows[at : at + size]
        outcomes = [row[3] for row in part if row[3] is not None]
        found.append(
            {
                "until": part[-1][2],
                "attempts": len(part),
                "mean": sum(outcomes) / len(outcomes) if outcomes else None,
                "failed": sum(row[4] not in ("none", "agent") for row in part),
            }
        )
    return found


async def episode(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """One episode, turn by turn."""
    given = request.match_info["id"]
    row = await parts.store.episodes.find(given)
    if row is None:
        raise RequestError(f"there is no episode {given}", fix="GET /v1/rl/episodes lists them", status=404, param="id")
    return answer(await episode_json(parts.store, row))


async def keep_picture(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Stores a screenshot of a step; the body is a PNG. Nothing is learned from it.

    It shows the screen before the step or, with `when=after`, after it. Send it after the step's reply. At most
    4 MiB and 8192 pixels a side; `store.pictures_mb` limits how much of all of them is kept.
    """
    name = await _picture_name(request, parts, key_name)
    data = await request.read()
    await parts.store.pictures.keep(name, data)
    when = WHEN[name.is_after]
    return answer({"id": name.episode, "step": name.step, "when": when, "bytes": len(data)})


async def picture(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """A screenshot of a step as a PNG; `when` is before or after it. GET /v1/rl/episodes/{id} says which exist."""
    name = await _picture_name(request, parts, key_name)
    held = await parts.store.pictures.read(name)
    if held is None:
        raise RequestError(
            f"there is no picture {WHEN[name.is_after]} step {name.step} of episode {name.episode}",
            fix="it was never sent, or was removed to make room (store.pictures_mb) or to forget",
            status=404,
            param="step",
        )
    return web.Response(body=held, content_type="image/png", headers=_PICTURE_HEADERS)


async def _picture_name(request: web.Request, parts: ServeParts, key_name: str) -> PictureName:
    step, when = request.match_info["step"], request.query.get("when", WHEN[0])
    if not step.isdecimal() or len(step) > _MOST_DIGITS:
        raise RequestError(f"step is {step!r}", fix="send a number from 0 on", param="step")
    if when not in WHEN:
        raise RequestError(f"when is {when!r}", fix=f"use one of {', '.join(WHEN)}", param="when")
    return PictureName(await _name(request, parts, key_name), int(step), is_after=when == WHEN[1])


async def _name(request: web.Request, parts: ServeParts, key_name: str) -> str:
    """The full id of the episode in the path: as it is if it exists, else prefixed with the key's name."""
    given = request.match_info["id"]
    is_known = await parts.store.episodes.get(given) is not None
    return given if is_known else parts.control.session_name(key_name, given)
