"""External training: a batch is leased over HTTP, and the adapter made from it is handed back."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
from aiohttp import web

from openclaw_rl.core.adapter import CONFIG, WEIGHTS
from openclaw_rl.core.feed import LeasedBatch, TrainingFeed
from openclaw_rl.core.message import Json
from openclaw_rl.core.sample import Sample
from openclaw_rl.errors import RequestError
from openclaw_rl.serve.apis.chat.wire import parsed
from openclaw_rl.serve.control.routes import answer
from openclaw_rl.serve.parts import ServeParts
from openclaw_rl.serve.request.names import check_name

MOST_WAIT_S = 30.0
MOST_WHY = 4000
_MOST_DIGITS = 15


class LeaseBody(msgspec.Struct):
    """The body of POST /v1/rl/training/leases: for how long to wait for a batch."""

    wait_s: float = 0.0


class HandBackBody(msgspec.Struct):
    """The body of POST .../done.

    `digest` is the SHA-256 over the name and the bytes of adapter_config.json and then of adapter_model.safetensors;
    `metrics` are kept with the version.
    """

    digest: str
    metrics: dict[str, float] = {}


class GiveUpBody(msgspec.Struct):
    """The body of POST .../give_up: why the step failed."""

    why: str


async def standing(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Whether a batch is offered to an external trainer, and whether it is leased."""
    return answer(_feed(parts).standing())


async def lease(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Leases the batch of the step that is due; 204 if there is none, or if another trainer has it."""
    body = parsed(await request.read(), LeaseBody)
    if not 0 <= body.wait_s <= MOST_WAIT_S:
        raise RequestError(
            f"wait_s is {body.wait_s}", fix=f"send a number of seconds from 0 to {MOST_WAIT_S:g}", param="wait_s"
        )
    batch = await _feed(parts).lease(wait_s=body.wait_s)
    return web.Response(status=204) if batch is None else answer(batch_json(batch, parts.models[0]))


async def extend(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Extends the lease: its time begins again."""
    name = request.match_info["id"]
    return answer({"lease": name, "left_s": _feed(parts).extend(name)})


async def start_file(request: web.Request, parts: ServeParts, key_name: str) -> web.StreamResponse:
    """A file of the adapter that the step starts from."""
    path = _feed(parts).start_file(request.match_info["id"], request.match_info["name"])
    return web.FileResponse(path, headers={"Content-Type": "application/octet-stream"})


async def receive(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Stores a piece of a file of the new adapter, from `offset` on; the body is its bytes."""
    offset = request.query.get("offset", "0")
    if not (offset.isascii() and offset.isdecimal()) or len(offset) > _MOST_DIGITS:
        raise RequestError(f"offset is {offset!r}", fix="send the number of bytes before this piece", param="offset")
    feed, data = _feed(parts), await request.read()
    return answer(
        {"bytes": await feed.receive(request.match_info["id"], request.match_info["name"], int(offset), data)}
    )


async def hand_back(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Accepts the adapter that was sent, once. It becomes a version that waits at the gate."""
    body = parsed(await request.read(), HandBackBody)
    is_first = await _feed(parts).hand_back(request.match_info["id"], body.digest, body.metrics)
    return answer({"lease": request.match_info["id"], "accepted": True, "repeated": not is_first})


async def give_up(request: web.Request, parts: ServeParts, key_name: str) -> web.Response:
    """Fails the step: its samples are kept, and return in smaller batches after a pause."""
    body = parsed(await request.read(), GiveUpBody)
    check_name(body.why, "why", most=MOST_WHY)
    await _feed(parts).give_up(request.match_info["id"], body.why)
    return answer({"lease": request.match_info["id"], "given_up": True})


def batch_json(batch: LeasedBatch, model: str) -> dict[str, Json]:
    """A leased batch as clients read it."""
    return {
        "lease": batch.lease,
        "lease_s": batch.lease_s,
        "batch": batch.batch,
        "model": model,
        "start": None if batch.start is None else {"version": batch.start.name, "files": [CONFIG, WEIGHTS]},
        "adapter": {"rank": batch.rank, "alpha": batch.alpha, "targets": batch.targets},
        "gentleness": batch.gentleness,
        "samples": [sample_json(sample) for sample in batch.samples],
    }


def sample_json(sample: Sample) -> dict[str, Json]:
    """A sample under the names of `core.sample`; versions are written as everywhere, such as shared.3."""
    body: dict[str, Json] = _with_names(msgspec.to_builtins(sample))  # type: ignore[assignment]
    return body | {"teaches": not sample.is_rehearsal}


def _with_names(value: object) -> Json:
    if isinstance(value, Mapping):
        if value.keys() == {"scope", "number"}:
            return f"{value['scope']}.{value['number']}"
        return {str(name): _with_names(held) for name, held in value.items()}
    if isinstance(value, list | tuple):
        return [_with_names(held) for held in value]
    assert value is None or isinstance(value, str | int | float)
    return value if not isinstance(value, float) or math.isfinite(value) else None


def _feed(parts: ServeParts) -> TrainingFeed:
    if parts.training is None:
        raise RequestError(
            "this server trains by itself",
            fix="start it with trainer.kind = external in config.toml to train elsewhere",
            status=409,
            code="trains_by_itself",
        )
    return parts.training
